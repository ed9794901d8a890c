package fleet

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"portico.dev/internal/filters"
	"portico.dev/internal/fleet/cluster"
	"portico.dev/internal/fleet/identity"
	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/server"
)

// usersChain is the chain of requests by users of the front door.
func (f *Fleet) usersChain() server.ChainConfig {
	c := f.config.Chain
	c.Authorizer, c.Impersonation = access{f.config.Chain.Authorizer}, impersonation{f.config.Chain.Authorizer}
	// A WebSocket begins with a GET, so a right to read would be a right to run commands.
	c.UpgradesNeedCreate = true
	c.Cluster, c.AdjustTimeout = nameOf, cluster.EndAfterServer
	return c
}

// tokensChain is the chain of requests by users of a cluster.
func (f *Fleet) tokensChain() server.ChainConfig {
	c := f.config.Chain
	c.Authenticator, c.Authorizer, c.PassImpersonation = authenticator.RequestFunc(authenticateToken), permitted{}, true
	c.Cluster, c.AdjustTimeout, c.FlowUser = nameOf, cluster.EndAfterServer, userOfCluster
	c.ReservedExtra = "" // the users have no identity here
	return c
}

// userOfCluster returns the user as which the front door classifies a user of a cluster: the cluster chooses the name and the groups,
// and must not give its users the priority of the front door's own.
func userOfCluster(ctx context.Context, u user.Info) user.Info {
	return &user.DefaultInfo{Name: "cluster:" + nameOf(ctx) + ":" + u.GetName(), Groups: []string{user.AllAuthenticated}}
}

func nameOf(ctx context.Context) string { return selected(ctx).name }

// authenticateToken lets the cluster of a request authenticate its bearer token.
func authenticateToken(r *http.Request) (*authenticator.Response, bool, error) {
	m := selected(r.Context()).member
	if err := m.refusal(r.Context(), true); err != nil {
		return nil, false, &filters.UndecidedError{Text: "the cluster cannot authenticate the token", Err: err}
	}
	return m.tokens.AuthenticateRequest(r)
}

// needsAccess reports whether the front door answers requests for a cluster itself, so that it must review who may make them.
func needsAccess(c *v1alpha1.Cluster) bool {
	return len(c.Spec.APIServices) > 0 || len(c.Spec.Shared) > 0
}

// authorize returns nil if the cluster lets the user of r make the request, or the response: a 403, or a 503 if the cluster does not
// decide. It is for requests that the front door answers itself, after refusal: the API servers do not authorize them.
func (m *member) authorize(r *filters.Request) error {
	u, err := identity.RulesOf(m.object.Spec.Identity).InCluster(r)
	if err != nil {
		return err
	}
	r.Record.ClusterUser = u.GetName()
	r.Record.HoldSeat(false) // a cluster that does not answer must not take all seats
	defer r.Record.CancelSeatRelease()
	allowed, reason, err := m.access.Authorize(r.Context(), u, r.Info)
	switch {
	case err != nil:
		return apierrors.NewServiceUnavailable(fmt.Sprintf("cluster %s does not authorize the request, try again: %v", m.name, err))
	case allowed:
		return nil
	}
	attributes, err := server.AttributesOf(r.Context())
	if err != nil {
		return err
	}
	attributes.User = u
	r.Record.Decision, r.Record.Reason = "forbid", reason
	return server.Forbidden(attributes, reason)
}

// access authorizes the use of clusters.
type access struct {
	frontDoor authorizer.UnconditionalAuthorizer
}

// Authorize implements authorizer.UnconditionalAuthorizer. The right is the verb of the request on clusters/proxy. The API servers of
// the cluster authorize the request itself.
func (a access) Authorize(ctx context.Context, asked authorizer.Attributes) (authorizer.Decision, string, error) {
	name, verb := nameOf(ctx), asked.GetVerb()
	if isSelfReview(asked) {
		verb = "get" // kubectl auth whoami and can-i, for readers
	}
	decision, reason, err := a.frontDoor.Authorize(ctx, useOf(name, verb, asked.GetUser()))
	if decision != authorizer.DecisionAllow {
		reason = fmt.Sprintf("the front door requires the right to %s clusters/proxy %q of %s", verb, name, v1alpha1.GroupVersion.Group)
	}
	return decision, reason, err
}

// useOf returns the attributes of the use of a cluster.
func useOf(name, verb string, u user.Info) *authorizer.AttributesRecord {
	return &authorizer.AttributesRecord{
		User: u, Verb: verb, ResourceRequest: true, Name: name,
		APIGroup: v1alpha1.GroupVersion.Group, APIVersion: v1alpha1.GroupVersion.Version, Resource: "clusters", Subresource: "proxy",
	}
}

// impersonation authorizes the impersonation of users of the front door in requests for clusters.
type impersonation struct {
	frontDoor authorizer.UnconditionalAuthorizer
}

// Authorize implements authorizer.UnconditionalAuthorizer. A right to impersonate for requests of one kind (KEP-5284) is about objects of
// the front door. The objects of a cluster are others, so for them it must be about the Cluster.
func (i impersonation) Authorize(ctx context.Context, asked authorizer.Attributes) (authorizer.Decision, string, error) {
	if verb := asked.GetVerb(); strings.HasPrefix(verb, "impersonate-on:") {
		asked = useOf(nameOf(ctx), verb, asked.GetUser())
	}
	return i.frontDoor.Authorize(ctx, asked)
}

// isSelfReview reports whether a user asks about itself, which changes nothing.
func isSelfReview(a authorizer.Attributes) bool {
	if a.GetVerb() != "create" || a.GetSubresource() != "" {
		return false
	}
	switch (schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()}) {
	case authenticationv1.Resource("selfsubjectreviews"), authorizationv1.Resource("selfsubjectaccessreviews"), authorizationv1.Resource("selfsubjectrulesreviews"):
		return true
	}
	return false
}

// permitted authorizes everything: the cluster decides.
type permitted struct{}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (permitted) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "the cluster decides", nil
}
