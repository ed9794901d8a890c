package dispatch

import (
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/filters"
	"portico.dev/internal/respond"
	"portico.dev/internal/routetable"
)

// withoutEtcd forwards requests for local groups to another replica while this replica has lost its connection to
// etcd.
//
// A read in flight fails with 503 when the connection is lost. The handler withholds that response and repeats the
// read at another replica.
type withoutEtcd struct {
	local     Handler
	remotes   *remotes
	forwarder *forwarder
	withEtcd  func() []string // the replicas with etcd; empty if this replica has etcd, or no replica has
	lost      func() bool     // reports whether withEtcd returns a replica
}

func newWithoutEtcd(here Handler, s *remotes, to *forwarder, withEtcd func() []string) *withoutEtcd {
	return &withoutEtcd{here, s, to, withEtcd, func() bool { return len(withEtcd()) > 0 }}
}

// Serve implements Handler.
func (h *withoutEtcd) Serve(w http.ResponseWriter, r *filters.Request) {
	if !needsEtcd(r) {
		h.local.Serve(w, r)
		return
	}
	if h.forward(w, r) {
		return
	}
	if r.Method != http.MethodGet || r.LongRunning || r.Header["Upgrade"] != nil {
		h.local.Serve(w, r)
		return
	}
	r.Client.Withhold(h.lost)
	h.local.Serve(w, r)
	if !r.Client.Release() || h.forward(w, r) {
		return
	}
	refusal := apierrors.NewServiceUnavailable("etcd does not answer this replica, and the others do not either")
	refusal.ErrStatus.Details = retryAfter(1)
	respond.Error(w, r.Request, refusal)
}

// forward sends a request to a replica with etcd. It returns false if no replica has etcd.
func (h *withoutEtcd) forward(w http.ResponseWriter, r *filters.Request) bool {
	names := h.withEtcd()
	if len(names) == 0 {
		return false
	}
	gv := schema.GroupVersion{Group: r.Info.APIGroup, Version: r.Info.APIVersion}
	route := &routetable.Route{GroupVersion: gv, Name: gv.Version + "." + gv.Group}
	d, ok := h.forwarder.resolve(r, route.Name, names)
	if ok {
		h.remotes.forward(w, r, route, d, nil)
	}
	return ok
}

// needsEtcd reports whether a request for a local group needs etcd. Token and access reviews do not: every replica
// answers them from its caches, and extension servers depend on them.
func needsEtcd(r *filters.Request) bool {
	return r.Info.IsResourceRequest && r.Info.APIGroup != authenticationv1.GroupName && r.Info.APIGroup != authorizationv1.GroupName
}
