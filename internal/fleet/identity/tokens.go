package identity

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/auth/authn"
	"portico.dev/internal/auth/tokenreview"
	"portico.dev/internal/filters"
	"portico.dev/internal/fleet/v1alpha1"
)

// tokenUser is a user that the cluster has authenticated, with its token.
type tokenUser struct {
	user.Info
	token *string // a pointer, so that it does not appear where a user is printed
}

// Tokens authenticates bearer tokens of a cluster by TokenReviews. A user of the cluster may have the name or the groups of a user of the
// front door, and must not be authorized there. Tokens is safe for concurrent use.
type Tokens struct {
	reviewer *tokenreview.Reviewer
	trust    authn.Trust // no certificates
}

// NewTokens returns a Tokens. cluster sends requests to an API server of the cluster with the credentials of the front door. It
// ignores the host of the URL.
func NewTokens(cluster http.RoundTripper, mode v1alpha1.IdentityMode) *Tokens {
	all := newReviewClient(cluster, mode)
	return &Tokens{reviewer: tokenreview.New(func(ctx context.Context, review, reply *authenticationv1.TokenReview) error {
		if err := all.create(ctx, tokenreview.Path, review, reply); err != nil {
			return &filters.UndecidedError{Text: "the cluster did not authenticate the token, try again", Err: err}
		}
		return nil
	})}
}

// AuthenticateRequest implements authenticator.Request. It removes the token from the request.
func (t *Tokens) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	response, err := authn.Authenticate(r, &t.trust, authenticator.TokenFunc(t.authenticate))
	switch {
	case errors.Is(err, authn.ErrNone):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("authenticate at the cluster: %w", err)
	}
	return response, true, nil
}

func (t *Tokens) authenticate(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	// A subprotocol can contain any bytes. kube-apiserver would read another token than the reviewed one from a header.
	if strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		return nil, false, authn.ErrInvalidToken
	}
	response, ok, err := t.reviewer.AuthenticateToken(ctx, token)
	if err != nil || !ok {
		return nil, false, err
	}
	// WithAuthenticated: authn.Authenticate keeps only users of these groups unchanged.
	return &authenticator.Response{User: &tokenUser{authn.WithAuthenticated(response.User), &token}}, true, nil
}

// Passes reports whether the bearer token of a request is for the cluster, so that Tokens authenticates it. own reports whether the front
// door signs tokens with the key of an ID: many clusters have the same issuer. Passes verifies nothing. A request with two tokens, or
// a token that is too long, never passes.
func Passes(policy v1alpha1.TokenPolicy, r *http.Request, own func(keyID string) bool) bool {
	if policy != v1alpha1.AllTokens && policy != v1alpha1.ServiceAccountTokens {
		return false
	}
	token, ok, err := authn.Token(r)
	if err != nil || !ok {
		return false
	}
	id, err := keyID(token)
	if policy == v1alpha1.AllTokens {
		return err != nil || !own(id) // the cluster could use a token of the front door there
	}
	return err == nil && !own(id) && isServiceAccountToken(token)
}

// keyID returns the ID of the key that signs a token.
func keyID(token string) (string, error) {
	head, _, err := authn.SplitToken(token)
	if err != nil {
		return "", err
	}
	var header struct {
		KeyID string `json:"kid"`
	}
	err = authn.DecodeTokenPart(head, &header, false)
	return header.KeyID, err
}

// isServiceAccountToken reports whether a token has the claims of a service account.
func isServiceAccountToken(token string) bool {
	_, body, err := authn.SplitToken(token)
	if err != nil {
		return false
	}
	var claims struct {
		Subject    string `json:"sub"`
		Kubernetes *struct {
			Namespace string `json:"namespace"`
		} `json:"kubernetes.io"`
		LegacyNamespace string `json:"kubernetes.io/serviceaccount/namespace"` // in a token of a Secret
	}
	if authn.DecodeTokenPart(body, &claims, false) != nil {
		return false
	}
	namespace, _, err := serviceaccount.SplitUsername(claims.Subject)
	return err == nil && (claims.LegacyNamespace == namespace || claims.Kubernetes != nil && claims.Kubernetes.Namespace == namespace)
}
