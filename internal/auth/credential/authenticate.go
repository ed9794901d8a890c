package credential

import (
	"errors"
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/request"
)

// ErrNone is the answer for a request that shows no credential. It alone may become anonymous.
var ErrNone = errors.New("no credential was presented")

// ErrInvalidToken is the answer for a bearer token that nobody recognises.
var ErrInvalidToken = errors.New("invalid bearer token")

// The kinds of credential that an audit event tells apart (attack row E4).
const (
	KindFrontProxy  = "front proxy"
	KindCertificate = "client certificate"
	KindToken       = "bearer token"
)

// Authenticate proves every credential that r shows and returns the first, in the documented order: front-proxied
// identity, client certificate, bearer token. On success the credentials are removed from r. The error is ErrNone when
// r shows none, and otherwise why one of them is bad.
//
// tokens may be nil: then no bearer token is good.
func Authenticate(r *http.Request, trust *Trust, tokens authenticator.Token) (*authenticator.Response, error) {
	cert, err := trust.certificate(r)
	if err != nil {
		return nil, err
	}
	response, err := authenticateToken(r, tokens)
	if err != nil {
		return nil, err
	}
	kind := KindToken
	switch {
	case cert.user != nil:
		kind = cert.kind
		response = &authenticator.Response{User: cert.user}
	case response == nil && cert.any:
		return nil, errors.New("a front proxy's certificate names nobody by itself and no identity header came with it")
	case response == nil:
		return nil, ErrNone
	}
	request.NoteCredential(r.Context(), kind)
	stripToken(r.Header)
	trust.Headers().Strip(r)
	return &authenticator.Response{Audiences: response.Audiences, User: WithAuthenticated(response.User)}, nil
}

// authenticateToken returns nil, nil when r shows no token.
func authenticateToken(r *http.Request, tokens authenticator.Token) (*authenticator.Response, error) {
	token, ok, err := Token(r)
	if err != nil || !ok {
		return nil, err
	}
	if tokens == nil {
		return nil, ErrInvalidToken
	}
	response, ok, err := tokens.AuthenticateToken(r.Context(), token)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, ErrInvalidToken
	}
	return response, nil
}

// Anonymous is the identity of a request that shows no credential, where such requests are let in.
func Anonymous() user.Info {
	return &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
}

// WithAuthenticated is u in the group system:authenticated. A front proxy may state that the client is anonymous to it;
// such a user stays outside the group.
func WithAuthenticated(u user.Info) user.Info {
	groups := u.GetGroups()
	if u.GetName() == user.Anonymous || slices.Contains(groups, user.AllAuthenticated) || slices.Contains(groups, user.AllUnauthenticated) {
		return u
	}
	return &user.DefaultInfo{
		Name:   u.GetName(),
		UID:    u.GetUID(),
		Groups: append(append(make([]string, 0, len(groups)+1), groups...), user.AllAuthenticated),
		Extra:  u.GetExtra(),
	}
}
