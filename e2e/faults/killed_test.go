package faults

import (
	"net/http"
	"sync/atomic"
	"testing"
)

// One of two endpoints is killed while both are in use. A pending read is repeated at the second one. A pending write must not
// be repeated: the backend may have executed it. Only such writes are lost, at most one per writer.
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
	half := int64(max(*writes, 10_000*writers) / 2) // a smaller number could not show one in 10,000
	writing.upTo(t, half)
	before := reached[1].Load()
	if reached[0].Load() == 0 || before == 0 {
		t.Fatalf("requests at the endpoints = %d and %d, want some at both", reached[0].Load(), before)
	}
	doomed.kill()
	writing.upTo(t, 2*half)
	writing.end()
	reads.end()
	t.Logf("%d reads, %d failed; %d writes, %d lost: %v", reads.done.Load(), reads.failed.Load(),
		writing.done.Load(), writing.failed.Load(), writing.errors)
	if reads.failed.Load() != 0 {
		t.Errorf("%d reads failed, want 0: %v", reads.failed.Load(), reads.errors)
	}
	if lost := writing.failed.Load(); lost*10_000 > writing.done.Load() {
		t.Errorf("%d of %d writes were lost, want at most one in 10,000: %v", lost, writing.done.Load(), writing.errors)
	}
	if reached[1].Load() == before {
		t.Errorf("requests at the other endpoint after the kill = %d, want more", before)
	}
}
