package gateway

import (
	"context"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"portico.dev/internal/auth/authn"
	"portico.dev/internal/request"
)

// frontProxies authenticates only the front proxies of the API server. Health requests do not require authentication.
type frontProxies struct {
	authenticate func(*http.Request) (user.Info, error)
}

// AuthenticateRequest implements authenticator.Request.
func (f frontProxies) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	u, err := f.authenticate(r)
	switch {
	case err == nil:
		return &authenticator.Response{User: u}, true, nil
	case isHealth(r.URL.Path):
		return &authenticator.Response{User: authn.Anonymous()}, true, nil
	}
	return nil, false, err
}

// passed authorizes requests from a front proxy: the API server has authorized them, and the extension server
// authorizes them again. All other requests are refused, except health requests.
type passed struct{}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (passed) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	switch {
	case strings.HasPrefix(a.GetVerb(), "impersonate"):
		// The API server has already applied impersonation, and does not forward such headers. A client that sends
		// one tries to impersonate a second time.
		return authorizer.DecisionDeny, "a gateway impersonates nobody", nil
	case !a.IsResourceRequest() && isHealth(a.GetPath()):
		return authorizer.DecisionAllow, "", nil
	case request.CredentialKind(ctx) != authn.KindFrontProxy:
		return authorizer.DecisionDeny, "a gateway serves the front proxies of its API server only", nil
	case !a.IsResourceRequest() && !isDocument(a.GetPath()):
		return authorizer.DecisionDeny, "a gateway serves APIs, and what describes them", nil
	}
	return authorizer.DecisionAllow, "", nil
}

func isHealth(path string) bool {
	return path == "/livez" || path == "/readyz" || path == "/healthz"
}

// isDocument reports whether an API server requests a path from a server behind it.
func isDocument(path string) bool {
	for _, root := range []string{"/apis", "/openapi"} {
		if path == root || strings.HasPrefix(path, root+"/") {
			return true
		}
	}
	return false
}
