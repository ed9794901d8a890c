package faults

import (
	"net/http"
	"sync/atomic"
	"testing"
)

// Of two endpoints one is killed while both are in use. A read that was under way is repeated on the other one. A write
// that was sent, and never answered, must not be: it may have been done. Those are the writes that are lost, and there
// can be no more of them than there were writers at that moment.
func TestAnEndpointIsKilledUnderLoad(t *testing.T) {
	f := newFront(t)
	config := f.certificate("pair")
	var reached [2]atomic.Int64
	counting := func(i int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			reached[i].Add(1)
			ok(w, r)
		})
	}
	doomed, other := serve(t, listen(t), config, counting(0)), serve(t, listen(t), config, counting(1))
	f.register("pair", 0, doomed.address, other.address)

	const readers, writers = 2, 2
	reads := begin(readers, func() error { return f.send(f.client, http.MethodGet, path("pair"), "") })
	writing := begin(writers, func() error { return f.send(f.client, http.MethodPost, path("pair"), `{"kind":"Foo"}`) })
	half := int64(max(*writes, 10_000*writers) / 2) // fewer could not tell one in 10,000 from one writer
	writing.upTo(t, half)
	before := reached[1].Load()
	if reached[0].Load() == 0 || before == 0 {
		t.Fatal("the load is not on both endpoints")
	}
	doomed.kill()
	writing.upTo(t, 2*half)
	writing.end()
	reads.end()
	t.Logf("%d reads, %d failed; %d writes, %d lost: %v", reads.done.Load(), reads.failed.Load(),
		writing.done.Load(), writing.failed.Load(), writing.errors)
	if reads.failed.Load() != 0 {
		t.Errorf("%d reads failed: %v", reads.failed.Load(), reads.errors)
	}
	if lost := writing.failed.Load(); lost*10_000 > writing.done.Load() {
		t.Errorf("%d of %d writes were lost, more than one in 10,000: %v", lost, writing.done.Load(), writing.errors)
	}
	if reached[1].Load() == before {
		t.Error("the other endpoint got nothing after the kill")
	}
}
