package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portico.dev/internal/filters"
	"portico.dev/internal/request"
)

// A server that sheds load ends long-running requests, continues to serve, and closes client connections until Keep is called.
func TestDrainerShedsConnectionsUntilKeep(t *testing.T) {
	d := NewDrainer()
	began, ended := make(chan struct{}), make(chan struct{})
	h := filters.RequestInfo(request.NewResolver())(d.filter()(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			close(began)
			<-r.Context().Done()
			close(ended)
		}
	})))
	ask := func(target string) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, withRequestContext(httptest.NewRequest(http.MethodGet, target, nil)))
		if w.Code != http.StatusOK {
			t.Errorf("GET %s = %d, want 200", target, w.Code)
		}
		return w.Header().Get("Connection")
	}
	const pods = "/api/v1/pods"
	go ask(pods + "?watch=1")
	<-began
	if got := ask(pods); got != "" {
		t.Errorf("Connection before Shed = %q, want none", got)
	}
	d.Shed()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("the watch still runs 30 seconds after Shed, want its end")
	}
	if got := ask(pods); got != "close" {
		t.Errorf("Connection while shedding = %q, want close", got)
	}
	began, ended = make(chan struct{}), make(chan struct{})
	go ask(pods + "?watch=1")
	<-began
	select {
	case <-ended:
		t.Error("the Shed before the second watch ended it, want it to run")
	default:
	}
	d.Keep()
	if got := ask(pods); got != "" {
		t.Errorf("Connection after Keep = %q, want none", got)
	}
	d.Shed()
	<-ended
}

// Drain returns when the last of many concurrent requests has ended, and not before.
func TestDrainWaitsForConcurrentRequests(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 20 {
		d := NewDrainer()
		var served, inFlight atomic.Int64
		var clients sync.WaitGroup
		for range 8 {
			clients.Go(func() {
				for {
					counted, _, ok := d.begin()
					if !ok {
						return
					}
					inFlight.Add(1)
					served.Add(1)
					runtime.Gosched()
					inFlight.Add(-1)
					counted.end()
				}
			})
		}
		last, _, ok := d.begin()
		if !ok {
			t.Fatal("a request was refused before Drain")
		}
		for served.Load() < 100 {
			runtime.Gosched()
		}
		drained := make(chan error, 1)
		go func() { drained <- d.Drain(ctx) }()
		clients.Wait()
		select {
		case <-drained:
			t.Fatal("Drain returned while a request was in flight")
		default:
		}
		if !d.busy() {
			t.Error("busy() = false while a request is in flight")
		}
		last.end()
		if err := <-drained; err != nil {
			t.Fatalf("Drain after the last request: %v", err)
		}
		if n := inFlight.Load(); n != 0 || d.busy() {
			t.Errorf("%d requests in flight and busy() = %v after Drain, want 0 and false", n, d.busy())
		}
	}
}
