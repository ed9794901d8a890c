package authentication

import (
	"context"
	"errors"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"portico.dev/internal/coreapi/registry"
)

func newTokenReviews(e *registry.Environment) rest.Storage {
	return &registry.Review{
		Singular: "tokenreview",
		Empty:    func() runtime.Object { return &authenticationv1.TokenReview{} },
		Check: func(_ context.Context, obj runtime.Object) error {
			if obj.(*authenticationv1.TokenReview).Spec.Token == "" {
				return apierrors.NewBadRequest("token is required for TokenReview in authentication")
			}
			return nil
		},
		Answer: func(ctx context.Context, obj runtime.Object) error {
			return reviewToken(ctx, e.TokenAuthenticator, obj.(*authenticationv1.TokenReview))
		},
	}
}

func newSelfSubjectReviews(*registry.Environment) rest.Storage {
	return &registry.Review{
		Singular: "selfsubjectreview",
		Empty:    func() runtime.Object { return &authenticationv1.SelfSubjectReview{} },
		Answer: func(ctx context.Context, obj runtime.Object) error {
			u, ok := apirequest.UserFrom(ctx)
			if !ok {
				return apierrors.NewBadRequest("no user present on request")
			}
			r := obj.(*authenticationv1.SelfSubjectReview)
			r.CreationTimestamp, r.Status = metav1.Now(), authenticationv1.SelfSubjectReviewStatus{UserInfo: userInfo(u)}
			return nil
		},
	}
}

// reviewToken authenticates the token of a review. A failed token is a valid response, not a request error; the reason is in
// the status, where extension servers log it.
func reviewToken(ctx context.Context, tokens authenticator.Token, r *authenticationv1.TokenReview) error {
	r.Status = authenticationv1.TokenReviewStatus{}
	if tokens == nil {
		return nil
	}
	if len(r.Spec.Audiences) > 0 {
		ctx = authenticator.WithAudiences(ctx, r.Spec.Audiences)
	}
	response, ok, err := tokens.AuthenticateToken(ctx, r.Spec.Token)
	switch {
	case err != nil:
		r.Status.Error = err.Error()
	case !ok:
		r.Status.Error = "invalid bearer token"
	}
	if !ok || err != nil || response == nil || response.User == nil {
		return nil
	}
	// The client listed the audiences that it accepts. A token for another audience may be stolen.
	if len(r.Spec.Audiences) > 0 && len(authenticator.Audiences(r.Spec.Audiences).Intersect(response.Audiences)) == 0 {
		return apierrors.NewInternalError(errors.New("token authenticator returned invalid response"))
	}
	r.Status.Authenticated = true
	r.Status.User = userInfo(response.User)
	r.Status.Audiences = response.Audiences
	return nil
}

func userInfo(u user.Info) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for key, values := range u.GetExtra() {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[key] = values
	}
	return info
}
