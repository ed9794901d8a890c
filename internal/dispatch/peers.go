package dispatch

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/filters"
	"portico.dev/internal/metrics"
	"portico.dev/internal/proxy"
	"portico.dev/internal/replicas/peers"
	"portico.dev/internal/routetable"
	"portico.dev/internal/transport"
)

// Replicas forwards requests to other replicas. It is implemented by peers.Peers.
type Replicas interface {
	// Backend returns the backend whose endpoints are the named replicas. names is sorted.
	Backend(names []string) (*transport.Backend, error)
	// Serving returns the replicas of other releases that serve a group-version themselves.
	Serving(gv schema.GroupVersion) []string
	// State returns the signed statement about a request and its user.
	State(r *http.Request, u user.Info) (string, error)
}

// forwarder resolves requests to other replicas. The zero value does not forward.
type forwarder struct {
	replicas Replicas
	metrics  *metrics.Peers
}

// resolve returns the destination of a request to one of the named replicas. It returns false if no replica is named,
// or if another replica forwarded the request to this one.
func (s *forwarder) resolve(r *filters.Request, apiService string, names []string) (proxy.Destination, bool) {
	if s.replicas == nil || len(names) == 0 {
		return proxy.Destination{}, false
	}
	if _, already := peers.StatementFrom(r.Context()); already {
		return proxy.Destination{}, false
	}
	backend, err := s.replicas.Backend(names)
	if err != nil {
		return proxy.Destination{}, false
	}
	s.metrics.Sent(apiService)
	return proxy.Destination{
		Backend: backend, APIService: apiService, Statement: proxy.Statement{Header: peers.Header, State: s.replicas.State},
	}, true
}

// replicaResolver resolves requests to the replicas that reach a backend.
type replicaResolver struct {
	*forwarder
	apiService string
	names      func() []string
}

// resolve implements resolver.
func (p *replicaResolver) resolve(r *filters.Request) (proxy.Destination, bool) {
	return p.forwarder.resolve(r, p.apiService, p.names())
}

// withReplicas forwards requests to a replica that reaches the backend of route, or else to next.
type withReplicas struct {
	next    Handler
	remotes *remotes
	route   *routetable.Route
	at      *replicaResolver
}

// Serve implements Handler.
func (h *withReplicas) Serve(w http.ResponseWriter, r *filters.Request) {
	if d, ok := h.at.resolve(r); ok {
		h.remotes.forward(w, r, h.route, d, nil)
		return
	}
	h.next.Serve(w, r)
}
