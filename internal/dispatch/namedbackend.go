package dispatch

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"portico.dev/internal/filters"
	"portico.dev/internal/respond"
	"portico.dev/internal/routes/v1alpha1"
	"portico.dev/internal/routetable"
)

// BackendHeader selects a backend of an APIRoute by name, bypassing the rules. Migrations use it to copy objects
// between backends. It requires the verb migrate for the APIRoute.
const BackendHeader = "X-Portico-Backend"

// migrateVerb authorizes BackendHeader.
const migrateVerb = "migrate"

// namedBackend serves requests with a BackendHeader.
type namedBackend struct {
	next       Handler
	route      *routetable.Route
	backends   []Handler
	authorizer authorizer.UnconditionalAuthorizer // nil: only system:masters is authorized
}

// Serve implements Handler.
func (h *namedBackend) Serve(w http.ResponseWriter, r *filters.Request) {
	names := r.Header[BackendHeader]
	if len(names) == 0 {
		h.next.Serve(w, r)
		return
	}
	if !h.allows(r.Context(), r.User) {
		gr := v1alpha1.GroupVersion.WithResource("apiroutes").GroupResource()
		respond.Error(w, r.Request, apierrors.NewForbidden(gr, h.route.Name, fmt.Errorf("the header %s needs the verb %q for the APIRoute", BackendHeader, migrateVerb)))
		return
	}
	at := slices.IndexFunc(h.route.Routing.Backends, func(b v1alpha1.APIRouteBackend) bool { return b.Name == names[0] })
	if at < 0 {
		respond.Error(w, r.Request, apierrors.NewBadRequest(fmt.Sprintf("%s: APIRoute %s has no backend %q", BackendHeader, h.route.Name, names[0])))
		return
	}
	h.backends[at].Serve(w, r)
}

func (h *namedBackend) allows(ctx context.Context, who user.Info) bool {
	switch {
	case who == nil:
		return false
	case slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup):
		return true
	case h.authorizer == nil:
		return false
	}
	gvr := v1alpha1.GroupVersion.WithResource("apiroutes")
	decision, _, err := h.authorizer.Authorize(ctx, &authorizer.AttributesRecord{
		User: who, Verb: migrateVerb, APIGroup: gvr.Group, APIVersion: gvr.Version, Resource: gvr.Resource, Name: h.route.Name, ResourceRequest: true,
	})
	return err == nil && decision == authorizer.DecisionAllow
}
