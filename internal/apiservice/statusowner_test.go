package apiservice

import (
	"testing"
	"testing/synctest"
	"time"

	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/transport"
)

// beside makes a controller another program of the same cluster that reads the same APIRoutes.
func beside(h *env, owns func(string) bool) option {
	return func(_ *env, cfg *Config, _ *transport.Options) {
		routes := *h.cfg.APIRoutes
		routes.OwnsStatus = owns
		cfg.APIRoutes = &routes
	}
}

// A gateway that had not adopted an APIService once wrote that its APIRoute had no effect, and the front door wrote the opposite.
func TestA55APIRouteStatusHasOneWriter(t *testing.T) {
	var routes *apiRoutes
	front := open(t, nil, withAPIRoutes(t, &routes))
	own := front.serve("own")
	front.add(external("own"))
	front.add(front.remote("example.com", "v1", "own", own.port()))
	routes.add("metadata: {name: v1.example.com}\nspec: {backends: [{name: own}]}")
	const effective = "Accepted=True(Accepted) Available=True(BackendsAvailable) backend own=True(Passed)"
	routes.is("v1.example.com", effective)

	gateway := open(t, nil, beside(front, func(string) bool { return false })) // it has no such APIService
	routes.mu.Lock()
	before := routes.writes
	routes.mu.Unlock()
	for _, program := range []*env{gateway, front} {
		if err := program.routeStatus.sync(t.Context(), "v1.example.com"); err != nil {
			t.Fatal(err)
		}
	}
	routes.mu.Lock()
	written := routes.writes - before
	routes.mu.Unlock()
	if got := routes.status("v1.example.com"); written != 0 || got != effective {
		t.Errorf("got %d writes and the status %q, want none and %q", written, got, effective)
	}
}

func TestA55FrontDoorDoesNotWriteStatusOfGateway(t *testing.T) {
	var routes *apiRoutes
	h := open(t, nil, withAPIRoutes(t, &routes))
	own := h.serve("own")
	h.add(external("own"))
	o := h.remote("example.com", "v1", "own", own.port())
	gateway := adoption.Service{Namespace: "portico-gateway", Name: "portico-gateway", Port: 443}
	if err := gateway.Prepare(o); err != nil {
		t.Fatal(err)
	}
	prepared := o.DeepCopy()
	if err := gateway.Adopt(o, []byte("ours")); err != nil {
		t.Fatal(err)
	}
	h.add(o)
	eventually(t, "the APIService is read", func() bool { _, err := h.lister.Get(o.Name); return err == nil })
	if h.ownsAPIRouteStatus(o.Name) {
		t.Errorf("ownsAPIRouteStatus(%s) = true for an APIService that leads to a gateway, want false", o.Name)
	}
	if leadsToGateway(prepared) {
		t.Error("leadsToGateway() = true for an APIService that is only prepared for a gateway, want false")
	}
	if !h.ownsAPIRouteStatus("v1.nobody.example.com") {
		t.Error("ownsAPIRouteStatus() = false for an APIRoute without an APIService, want true")
	}
}

// Two writers that disagree do not write without limit.
func TestA55StatusWritesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limits writeLimits
		writes := map[string]int{}
		for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(time.Millisecond) {
			for _, name := range []string{"a", "b"} {
				if limits.delay(name) == 0 {
					writes[name]++
				}
			}
		}
		want := statusBurst + int(time.Minute/statusInterval)
		for _, name := range []string{"a", "b"} {
			if got := writes[name]; got < want-1 || got > want {
				t.Errorf("%s: got %d writes within a minute, want %d", name, got, want)
			}
		}
	})
}
