package identity

import (
	"context"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/auth/accessreview"
	"portico.dev/internal/filters"
	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/proxy"
)

// Access authorizes requests in a cluster by SubjectAccessReviews, for responses that do not come from the API servers. It is safe for
// concurrent use.
type Access struct{ reviewer *accessreview.Reviewer }

// NewAccess returns an Access. cluster is like that of NewTokens.
func NewAccess(cluster http.RoundTripper, mode v1alpha1.IdentityMode) *Access {
	all := newReviewClient(cluster, mode)
	return &Access{accessreview.New(func(ctx context.Context, review, reply *authorizationv1.SubjectAccessReview) error {
		return all.create(ctx, accessreview.Path, review, reply)
	})}
}

// Authorize reports whether a user of the cluster may make a request there, and the reason. An error means that the cluster did not
// decide. The decisions are cached for a few seconds.
func (a *Access) Authorize(ctx context.Context, u user.Info, info *apirequest.RequestInfo) (allowed bool, reason string, err error) {
	return a.reviewer.Authorize(ctx, u, info)
}

// InCluster returns the user that the API servers would authorize for a request. A user that must not be sent is an error, and so is a
// user of the cluster that impersonates another one: only the cluster can authorize that.
func (r Rules) InCluster(asked *filters.Request) (user.Info, error) {
	if u, ok := asked.User.(*tokenUser); ok {
		if Impersonates(asked.Header) {
			return nil, forbidden("the front door answers this request itself, and cannot authorize the impersonation by a user of the cluster")
		}
		return u.Info, nil
	}
	u, err := r.Of(asked.User)
	if err != nil {
		return nil, err
	}
	if err := proxy.WriteIdentity(http.Header{}, impersonationHeaders, u); err != nil {
		return nil, forbidden(err.Error())
	}
	return u, nil
}
