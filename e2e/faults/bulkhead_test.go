package faults

import (
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// One backend hangs and is at its limit, while its clients send more requests than there are seats for all writes of the front
// door. Clients of another backend and of the local groups are not affected. Healthy and faulty rounds alternate, because the
// machine's speed varies.
func TestABackendThatHangsAtItsLimitDelaysNobodyElse(t *testing.T) {
	const limit, rounds, each, workers = 250, 5, 150, 4
	f := newFront(t)
	var hang atomic.Pointer[chan struct{}] // closed when a round is over
	var refused atomic.Int64
	hung := f.register("hung", limit, serve(t, listen(t), f.certificate("hung"), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-*hang.Load():
		case <-r.Context().Done():
		}
	})).address)
	f.register("well", 0, serve(t, listen(t), f.certificate("well"), ok).address)

	their, our := f.newClient(), f.newClient()
	their.Timeout = patience // rounds may be long on a busy machine
	paths := []string{path("well"), local}
	healthy, faulted := map[string][]time.Duration{}, map[string][]time.Duration{} // the 99th percentile of each round
	sample := func(into map[string][]time.Duration) {
		for _, p := range paths {
			times, errs := measure(workers, each, func() error { return f.send(our, http.MethodPost, p, `{"kind":"Foo"}`) })
			if len(errs) > 0 {
				t.Errorf("%d of %d requests for %s failed, want 0; first: %v", len(errs), len(times), p, errs[0])
			}
			into[p] = append(into[p], percentile(times, 0.99))
		}
	}
	sample(map[string][]time.Duration{}) // connections are made, and code is warm
	calm := make(chan struct{})
	close(calm)
	hang.Store(&calm)
	// On a busy machine the first connection may not be made in the time that a request waits for one.
	eventually(t, func() bool { return f.send(their, http.MethodPost, path("hung"), "") == nil })
	for range rounds {
		sample(healthy)
		stop := make(chan struct{})
		hang.Store(&stop)
		var wg sync.WaitGroup
		for range limit + 10 {
			wg.Go(func() {
				for {
					r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+f.address+path("hung"), http.NoBody)
					if err != nil {
						t.Error(err)
						return
					}
					res, err := their.Do(r)
					if err != nil {
						t.Error(err)
						return
					}
					said, err := io.ReadAll(io.LimitReader(res.Body, 1<<10))
					_ = res.Body.Close()
					switch {
					case err != nil:
						t.Error(err)
						return
					case res.StatusCode == http.StatusOK:
						return // it hung until the round was over
					case res.StatusCode != http.StatusTooManyRequests:
						t.Errorf("response of the hung backend = %s: %s; want 200 or 429", res.Status, said)
						return
					}
					refused.Add(1)
					if res.Header.Get("Retry-After") != "1" {
						t.Errorf("Retry-After of a 429 = %q, want 1", res.Header.Get("Retry-After"))
					}
					select {
					case <-stop:
						return
					case <-time.After(200 * time.Millisecond): // earlier than Retry-After requires
					}
				}
			})
		}
		// One user has four fifths of the places, and no more.
		const most, least = (limit*4 + 4) / 5, limit * 4 / 5
		atLimit := func(n int64) bool { return least <= n && n <= most }
		eventually(t, func() bool { return atLimit(hung.Report().InFlight) && refused.Load() > 0 })
		sample(faulted)
		if n := hung.Report().InFlight; !atLimit(n) {
			t.Errorf("%d requests in flight at the end of a round, want %d to %d", n, least, most)
		}
		close(stop)
		wg.Wait()
	}
	for _, p := range paths {
		// Requests that share seats, connections or locks with the hung backend are slow in every round. The machine is slow
		// only in some.
		before, after := percentile(healthy[p], 0.5), slices.Min(faulted[p])
		t.Logf("%s: p99 of rounds healthy %v, beside the hung backend %v", p, healthy[p], faulted[p])
		if after > 2*before+20*time.Millisecond {
			t.Errorf("%s: p99 rose from %s to at least %s, want at most twice and 20 ms more", p, before, after)
		}
	}
}
