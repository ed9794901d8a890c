package faults

import (
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"portico.dev/internal/transport"
)

// blackHole is an endpoint behind a network that can be made to swallow everything: no answer, no reset, no error.
type blackHole struct {
	listener net.Listener // where the endpoint listens
	address  string       // where the front door reaches it
	swallow  func()
	restore  func()
}

// One of two endpoints falls silent: its machine failed, or a firewall dropped the connection state. Pending requests are
// repeated at the other one, and within two seconds all requests use only that one. When the network is back the endpoint is
// used again.
func TestAnEndpointFallsSilent(t *testing.T) {
	for _, kind := range []struct {
		name string
		make func(testing.TB) (*blackHole, error)
	}{
		{"a network namespace", inNamespace},
		{"a hop that swallows", behindHop},
	} {
		t.Run(kind.name, func(t *testing.T) {
			a, err := kind.make(t)
			if err != nil {
				t.Logf("not on this machine (%v): the hop is tested instead, twice", err)
				if a, err = behindHop(t); err != nil {
					t.Fatal(err)
				}
			}
			fallSilent(t, a)
		})
	}
}

func fallSilent(t *testing.T, a *blackHole) {
	f := newFront(t)
	config := f.certificate("pair")
	serve(t, a.listener, config, ok)
	alive := serve(t, listen(t), config, ok)
	b := f.register("pair", 0, a.address, alive.address)
	f.register("well", 0, serve(t, listen(t), f.certificate("well"), ok).address)
	warm := begin(4, func() error { return f.send(f.client, http.MethodGet, path("pair"), "") })
	// A new network may need a moment before it carries data, and all reads use the other endpoint until then.
	eventually(t, func() bool {
		return !slices.ContainsFunc(b.Report().Endpoints, func(e transport.EndpointReport) bool { return e.Connections == 0 || e.State != "well" })
	})
	warm.upTo(t, warm.done.Load()+200)
	warm.end()
	if warm.failed.Load() > 0 {
		t.Fatalf("reads before the fault failed: %v, want no error", warm.errors)
	}

	a.swallow()
	cut := time.Now()
	reads := begin(8, func() error { return f.send(f.client, http.MethodGet, path("pair"), "") })
	beside := begin(8, func() error { return f.send(f.client, http.MethodGet, path("well"), "") }) // meet no fault
	eventually(t, func() bool {
		for _, e := range b.Report().Endpoints {
			if e.Address == a.address && e.State == "ejected" {
				return true
			}
		}
		return false
	})
	found := time.Since(cut)
	reads.upTo(t, reads.done.Load()+200)
	reads.end()
	beside.end()
	t.Logf("found after %s; of %d reads %d failed, and the slowest took %s; of those beside the slowest took %s",
		found, reads.done.Load(), reads.failed.Load(), reads.slowest, beside.slowest)
	if reads.failed.Load() > 0 {
		t.Errorf("%d reads failed, want 0: %v", reads.failed.Load(), reads.errors)
	}
	if limit := 2*time.Second + 8*beside.slowest; reads.slowest > limit { // a busy machine is slow with everything
		t.Errorf("slowest read = %s, want at most %s", reads.slowest, limit)
	}
	after := begin(4, func() error { return f.send(f.client, http.MethodPost, path("pair"), `{"kind":"Foo"}`) })
	after.upTo(t, 100)
	after.end()
	if after.failed.Load() > 0 {
		t.Errorf("%d writes failed after the endpoint was found silent, want 0: %v", after.failed.Load(), after.errors)
	}

	a.restore()
	eventually(t, func() bool {
		if err := f.send(f.client, http.MethodGet, path("pair"), ""); err != nil {
			t.Error(err)
		}
		for _, e := range b.Report().Endpoints {
			if e.Address == a.address && e.State == "well" {
				return true
			}
		}
		return false
	})
}

// behindHop starts a TCP relay. In a fault it keeps its connections and drops all data.
func behindHop(t testing.TB) (*blackHole, error) {
	t.Helper()
	l := listen(t)
	h := newHop(t, l.Addr().String())
	return &blackHole{
		listener: l, address: h.address,
		swallow: func() { h.deaf.Store(true) }, restore: func() { h.deaf.Store(false) },
	}, nil
}
