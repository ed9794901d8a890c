package apiservice

import (
	"testing"
	"time"

	"portico.dev/internal/transport"
)

// connected lets what the transport meets come to the controller, as in the whole house.
func connected(h *house, _ *Config, o *transport.Options) {
	// The controller is made after the transport, and before anybody is dialled.
	o.OnFailure = func(b *transport.Backend, _ error) { h.ReportFailure(b) }
	o.OnSuccess = func(b *transport.Backend) { h.ReportSuccess(b) }
}

func TestAnIdleBackendThatGoesIsNoticedWithoutARequest(t *testing.T) {
	h := open(t, nil, connected)
	b := h.serve("server")
	h.add(external("server"))
	h.add(h.remote("example.com", "v1", "server", b.port()))
	h.is("v1.example.com", "True", "Passed")
	b.stop()
	start := time.Now()
	h.is("v1.example.com", "False", "FailedDiscoveryCheck")
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestAnAnsweredRequestVouchesForItsBackend(t *testing.T) {
	h := open(t, nil, connected)
	b := h.serve("server")
	h.add(external("server"))
	h.add(h.remote("example.com", "v1", "server", b.port()))
	h.is("v1.example.com", "True", "Passed")
	if at := h.DebugState().Backends[0].LastAnswer; !at.IsZero() {
		t.Errorf("a probe vouched for itself at %v", at)
	}
	r, _ := h.Table().Lookup(gvExample)
	request(t, r.Backend)
	if at := h.DebugState().Backends[0].LastAnswer; time.Since(at) > time.Minute {
		t.Errorf("the last answer was noted at %v", at)
	}
}
