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

// Config selects the accepted credentials. The zero value accepts none.
type Config struct {
	// ClientCA verifies client certificates. The common name is the user, the organizations are the groups. If nil,
	// no certificate is accepted.
	ClientCA *pki.Bundle
	// TokenFile lists static tokens; see [LoadTokenFile]. Run reloads it when it changes. Empty for no static tokens.
	TokenFile string
	// ServiceAccounts verifies service account tokens. If nil, none are accepted.
	ServiceAccounts authenticator.Token
	// RequestHeader configures trust in a front proxy. If nil, identity headers are removed and never used.
	RequestHeader *RequestHeaderConfig
	// Tokens verify bearer tokens, in order, after static and service account tokens. An authenticator that
	// recognizes a token as invalid returns an error, which ends the search.
	Tokens []authenticator.Token
	// Requests authenticate requests without a credential of the kinds above, in order. An error ends the search. The
	// users they return are added to system:authenticated.
	Requests []authenticator.Request
	// Anonymous allows requests without credentials, as system:anonymous. A request with an invalid credential is
	// never anonymous.
	Anonymous bool
	// AnonymousPaths, if not empty, restricts Anonymous to requests with exactly these paths.
	AnonymousPaths []string
	// AnonymousRule, if not nil, is called for each request. If it returns said, its result replaces the two fields
	// above.
	AnonymousRule func() (said, enabled bool, paths []string)
	// Metrics counts authentication attempts. Required for AuthenticateRequest.
	Metrics *metrics.Auth
	Logger  *zap.Logger
}

// RequestHeaderConfig describes front proxies that assert the identity of their clients in headers.
type RequestHeaderConfig struct {
	// ClientCA signs the certificates of front proxies and should not sign others.
	ClientCA *pki.Bundle
	// AllowedNames are the accepted common names of front proxies. Empty accepts any name; New refuses this if
	// ClientCA overlaps with the CA of ordinary clients.
	AllowedNames []string
	// Header names, as in kube-apiserver's --requestheader-*-headers. At least one username header is required.
	UsernameHeaders, UIDHeaders, GroupHeaders, ExtraHeaderPrefixes []string
}

// Authenticator authenticates requests to the front door. It is safe for concurrent use.
type Authenticator struct {
	trust     *Trust
	static    *tokenFile // nil without a token file
	tokens    tokenChain
	verifier  authenticator.Token // same as tokens
	requests  []authenticator.Request
	anonymous func() (said, enabled bool, paths []string)
	metrics   *metrics.Auth
	log       *zap.Logger
}

// New reads the token file. It returns an error if the front-proxy CA overlaps with the client CA and any proxy name
// is allowed.
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
		a.log.Warn("client CA and front-proxy CA overlap; only the allowed names prevent clients from acting as a front proxy",
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

// IsFrontProxy reports whether a certificate chain belongs to a front proxy; see [Trust.IsFrontProxy].
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

// AuthenticateRequest returns the user of r, and removes the credentials and all identity headers from r. It returns
// false if r has no credential and anonymous requests are not allowed, and an error if a credential is invalid. Both
// result in a 401.
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

// AuthenticateToken returns the user of a token, for TokenReview. If ctx contains audiences, the token must be valid
// for one of them.
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

// Stale returns why the configuration in use differs from its files, or nil. It is a readyz check.
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

// tokenChain calls its authenticators in order. An error ends the search: it means that the authenticator recognized
// the token and found it invalid, and a forged service account token cannot be valid for another authenticator.
type tokenChain []authenticator.Token

func (c tokenChain) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	for _, member := range c {
		if response, ok, err := member.AuthenticateToken(ctx, token); ok || err != nil {
			return response, ok, err
		}
	}
	return nil, false, nil
}
