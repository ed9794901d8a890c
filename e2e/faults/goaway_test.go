package faults

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// A backend that sends GOAWAY after every ten requests, and drops requests after the tenth, delays writes and loses none
// (kubernetes/kubernetes#135285).
func TestGoAwayStormUnderWrites(t *testing.T) {
	f := newFront(t)
	var served atomic.Int64
	f.register("restless", 0, goingAway(t, f.certificate("restless"), 10, func() { served.Add(1) }))
	body := `{"kind":"Foo","data":"` + strings.Repeat("x", 2000) + `"}`
	const workers = 16
	times, errs := measure(workers, *writes/workers, func() error { return f.send(f.client, http.MethodPost, path("restless"), body) })
	t.Logf("%d writes over at least %d connections, p99 %s", len(times), served.Load()/10, percentile(times, 0.99))
	if len(errs) > 0 {
		t.Errorf("%d of %d writes failed, want 0; first: %v", len(errs), len(times), errs[0])
	}
	if served.Load() != int64(len(times)) {
		t.Errorf("%d writes were executed %d times, want once each", len(times), served.Load())
	}
}
