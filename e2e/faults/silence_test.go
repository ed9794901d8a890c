package faults

import (
	"net"
	"net/http"
	"testing"
	"time"
)

// abyss is an endpoint behind a network that can be made to swallow everything: no answer, no reset, no error.
type abyss struct {
	listener net.Listener // where the endpoint listens
	address  string       // where the front door reaches it
	swallow  func()
	restore  func()
}

// Of two endpoints one falls silent: its machine is gone, or a firewall forgot the connection. What was under way is
// repeated on the other one, and within two seconds everything is as if there were only that one. When the network is
// back the endpoint is used again.
func TestAnEndpointFallsSilent(t *testing.T) {
	for _, kind := range []struct {
		name string
		make func(testing.TB) (*abyss, error)
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

func fallSilent(t *testing.T, a *abyss) {
	f := newFront(t)
	config := f.certificate("pair")
	serve(t, a.listener, config, ok)
	alive := serve(t, listen(t), config, ok)
	b := f.register("pair", 0, a.address, alive.address)
	warm := begin(4, func() error { return f.send(f.client, http.MethodGet, path("pair"), "") })
	warm.upTo(t, 200)
	warm.end()
	if warm.failed.Load() > 0 {
		t.Fatal(warm.errors)
	}
	for _, e := range b.Report().Endpoints {
		if e.Connections == 0 {
			t.Fatalf("no connection to %s", e.Address)
		}
	}

	a.swallow()
	cut := time.Now()
	reads := begin(8, func() error { return f.send(f.client, http.MethodGet, path("pair"), "") })
	eventually(t, 10*time.Second, func() bool {
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
	t.Logf("found after %s; of %d reads %d failed, and the slowest took %s", found, reads.done.Load(), reads.failed.Load(), reads.slowest)
	if reads.failed.Load() > 0 {
		t.Errorf("%d reads failed: %v", reads.failed.Load(), reads.errors)
	}
	if reads.slowest > 2*time.Second {
		t.Errorf("a read took %s", reads.slowest)
	}
	after := begin(4, func() error { return f.send(f.client, http.MethodPost, path("pair"), `{"kind":"Foo"}`) })
	after.upTo(t, 100)
	after.end()
	if after.failed.Load() > 0 {
		t.Errorf("once it is known, %d writes failed: %v", after.failed.Load(), after.errors)
	}

	a.restore()
	eventually(t, 15*time.Second, func() bool {
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

// behindHop is a TCP hop of our own. It keeps its connections and what was sent on them is never heard of.
func behindHop(t testing.TB) (*abyss, error) {
	t.Helper()
	l := listen(t)
	h := newHop(t, l.Addr().String())
	return &abyss{
		listener: l, address: h.address,
		swallow: func() { h.deaf.Store(true) }, restore: func() { h.deaf.Store(false) },
	}, nil
}
