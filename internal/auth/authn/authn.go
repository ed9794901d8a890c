package authn

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/authentication/authenticator"

	"portico.dev/internal/metrics"
	"portico.dev/internal/pki"
)

// Config says which credentials are accepted. The zero value accepts none.
type Config struct {
	// ClientCA signs client certificates: common name is the user, organizations are the groups. Nil: none are
	// accepted.
	ClientCA *pki.Bundle
	// TokenFile lists static tokens; see [LoadTokenFile]. Run reloads it when it changes. Empty: none.
	TokenFile string
	// ServiceAccounts verifies service account tokens. Nil: none are accepted.
	ServiceAccounts authenticator.Token
	// RequestHeader trusts a front proxy. Nil: identity headers are only ever removed.
	RequestHeader *RequestHeaderConfig
	// Tokens verify bearer tokens beside those two, and are asked after them, in order. An authenticator whose own
	// token is invalid returns an error, which ends the search.
	Tokens []authenticator.Token
	// Requests authenticate requests that have no credential known to the fields above, in order. One that returns an error
	// ends the search. What they return is in system:authenticated besides.
	Requests []authenticator.Request
	// Anonymous allows requests without credentials, as system:anonymous. A bad credential is never anonymous.
	Anonymous bool
	// AnonymousPaths, when there are some, are the only paths where Anonymous applies. They are compared whole.
	AnonymousPaths []string
	// AnonymousRule, if it returns said at the moment of a request, replaces the two fields above.
	AnonymousRule func() (said, enabled bool, paths []string)
	// Metrics count requests. Required for AuthenticateRequest.
	Metrics *metrics.Auth
	Logger  *zap.Logger
}

// RequestHeaderConfig is a front proxy that states the identity of its clients in headers.
type RequestHeaderConfig struct {
	// ClientCA signs front proxies, and should sign nothing else.
	ClientCA *pki.Bundle
	// AllowedNames are the common names of front proxies. Empty is any, and is refused when ClientCA overlaps with the CA
	// of ordinary clients.
	AllowedNames []string
	// The names of the headers; --requestheader-*-headers of kube-apiserver. At least one username header is needed.
	UsernameHeaders, UIDHeaders, GroupHeaders, ExtraHeaderPrefixes []string
}

// Authenticator authenticates requests to the front door. It is safe for concurrent use.
type Authenticator struct {
	trust     *Trust
	static    *tokenFile // nil without one
	tokens    tokenChain
	verifier  authenticator.Token // tokens
	requests  []authenticator.Request
	anonymous func() (said, enabled bool, paths []string)
	metrics   *metrics.Auth
	log       *zap.Logger
}

// New reads the token file and refuses dangerous trust: a front-proxy CA that overlaps with the client CA while any
// name is allowed.
func New(cfg Config) (*Authenticator, error) {
	a := &Authenticator{
		trust:     &Trust{Clients: cfg.ClientCA},
		requests:  slices.Clone(cfg.Requests),
		anonymous: anonymousRule(cfg),
		metrics:   cfg.Metrics,
		log:       cfg.Logger,
	}
	if h := cfg.RequestHeader; h != nil {
		proxy, err := frontProxy(h)
		if err != nil {
			return nil, err
		}
		a.trust.FrontProxy = proxy
	}
	if err := a.trust.Check(); err != nil {
		return nil, err
	}
	if shared := a.trust.Shared(); shared != nil {
		a.log.Warn("the client CA and the front-proxy CA overlap; only the listed names keep clients from posing as front proxies",
			zap.Stringer("certificate", shared.Subject), zap.Strings("allowed", a.trust.FrontProxy.AllowedNames))
	}
	if cfg.TokenFile != "" {
		file, err := pki.OpenWatchedFile(cfg.TokenFile, LoadTokenFile)
		if err != nil {
			return nil, err
		}
		a.static = &tokenFile{file}
		a.tokens = append(a.tokens, a.static)
	}
	if cfg.ServiceAccounts != nil {
		a.tokens = append(a.tokens, cfg.ServiceAccounts)
	}
	a.tokens = append(a.tokens, cfg.Tokens...)
	a.verifier = a.tokens
	return a, nil
}

// IsFrontProxy reports whether a certificate chain is a front proxy's (Trust.IsFrontProxy).
func (a *Authenticator) IsFrontProxy(chain []*x509.Certificate) bool {
	return a.trust.IsFrontProxy(chain)
}

func anonymousRule(cfg Config) func() (said, enabled bool, paths []string) {
	paths := slices.Clone(cfg.AnonymousPaths)
	return func() (bool, bool, []string) {
		if cfg.AnonymousRule != nil {
			if said, enabled, paths := cfg.AnonymousRule(); said {
				return said, enabled, paths
			}
		}
		return true, cfg.Anonymous, paths
	}
}

func frontProxy(h *RequestHeaderConfig) (*FrontProxy, error) {
	switch {
	case h.ClientCA == nil:
		return nil, errors.New("request headers are believed only from a verified front proxy; set --requestheader-client-ca-file")
	case len(h.UsernameHeaders) == 0:
		return nil, errors.New("no request header names the user; set --requestheader-username-headers")
	}
	for _, names := range [][]string{h.UsernameHeaders, h.UIDHeaders, h.GroupHeaders, h.ExtraHeaderPrefixes} {
		if slices.Contains(names, "") {
			// An empty extra prefix would turn every header of the request into an identity.
			return nil, errors.New("a request header name or prefix is empty; check the --requestheader flags")
		}
	}
	return &FrontProxy{
		Bundle:       h.ClientCA,
		AllowedNames: slices.Clone(h.AllowedNames),
		Headers: Headers{
			Username:    h.UsernameHeaders,
			UID:         h.UIDHeaders,
			Group:       h.GroupHeaders,
			ExtraPrefix: h.ExtraHeaderPrefixes,
		},
	}, nil
}

// AuthenticateRequest returns the user of r, and removes the credentials and every identity header from it. It returns
// false when r has no credential and anonymous requests are not allowed, and an error when a credential is bad; both
// are a 401.
func (a *Authenticator) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	began := time.Now()
	response, ok, err := a.authenticate(r)
	switch took := time.Since(began); {
	case err != nil:
		a.metrics.Attempt("error", took)
	case !ok:
		a.metrics.Attempt("failure", took)
	default:
		a.metrics.Attempt("success", took)
		a.metrics.User(response.User.GetName())
	}
	return response, ok, err
}

func (a *Authenticator) authenticate(r *http.Request) (*authenticator.Response, bool, error) {
	response, err := Authenticate(r, a.trust, a.verifier)
	switch {
	case err == nil:
		return response, true, nil
	case !errors.Is(err, ErrNone):
		return nil, false, fmt.Errorf("authenticate: %w", err)
	}
	for _, other := range a.requests {
		response, ok, err := other.AuthenticateRequest(r)
		if err != nil {
			return nil, false, fmt.Errorf("authenticate: %w", err)
		}
		if ok {
			a.trust.Headers().Strip(r)
			return &authenticator.Response{Audiences: response.Audiences, User: WithAuthenticated(response.User)}, true, nil
		}
	}
	switch {
	case !a.anonymousAllowed(r):
		return nil, false, nil
	}
	a.trust.Headers().Strip(r)
	return &authenticator.Response{User: Anonymous()}, true, nil
}

func (a *Authenticator) anonymousAllowed(r *http.Request) bool {
	_, enabled, paths := a.anonymous()
	return enabled && (len(paths) == 0 || slices.Contains(paths, r.URL.Path))
}

// AuthenticateToken returns the user of a token, for TokenReview. The audiences in ctx, if any, are the ones it must be
// valid for.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if len(token) > MaxTokenBytes {
		return nil, false, ErrInvalidToken
	}
	response, ok, err := a.tokens.AuthenticateToken(ctx, token)
	if err != nil || !ok {
		return nil, false, err
	}
	return &authenticator.Response{Audiences: response.Audiences, User: WithAuthenticated(response.User)}, true, nil
}

// Stale is why the configuration in force is not what its files say, nil when it is. It is for readyz.
func (a *Authenticator) Stale() error {
	err := a.trust.Check()
	if a.static != nil {
		err = errors.Join(err, a.static.Stale())
	}
	return err
}

// Run reloads the token file when it changes, until ctx ends.
func (a *Authenticator) Run(ctx context.Context) error {
	if a.static == nil {
		<-ctx.Done()
		return nil
	}
	return a.static.Run(ctx, a.log, func(error) {})
}

// tokenChain asks each authenticator in turn. One that recognises the token as its own and finds it invalid ends the
// search: a forged service account token cannot be a valid one of another kind.
type tokenChain []authenticator.Token

func (c tokenChain) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	for _, member := range c {
		if response, ok, err := member.AuthenticateToken(ctx, token); ok || err != nil {
			return response, ok, err
		}
	}
	return nil, false, nil
}
