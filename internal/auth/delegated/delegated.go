package delegated

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"portico.dev/internal/auth/accessreview"
	"portico.dev/internal/auth/authn"
	"portico.dev/internal/auth/tokenreview"
)

// Config configures the connection to the front door and the local exceptions.
type Config struct {
	// Client is the connection to the front door. Its identity requires the Role
	// extension-apiserver-authentication-reader in kube-system and the ClusterRole system:auth-delegator. Required.
	Client *rest.Config
	// AnonymousAllowed admits requests without credentials as system:anonymous, subject to authorization.
	AnonymousAllowed bool
	// AlwaysAllowPaths are non-resource paths that do not require authorization. A trailing * matches a prefix; the
	// leading slash is optional. Default /healthz, /readyz and /livez.
	AlwaysAllowPaths []string
	// AlwaysAllowGroups do not require authorization. Default system:masters.
	AlwaysAllowGroups []string
	// FrontProxyOnly accepts only certificates of front proxies as credentials. Client certificates and tokens do not
	// identify a user, and no TokenReview is sent. It is for servers that leave authorization to the servers to which
	// they forward requests.
	FrontProxyOnly bool
	// Distrust, if not nil, reports whether a published front-proxy CA must not be trusted. An example is the
	// server's own CA, which would make it trust its own forwarded requests when they loop back.
	Distrust func(*x509.Certificate) bool
	// StartTimeout is how long Run waits for the front door to start and publish its ConfigMap. Default one minute.
	StartTimeout time.Duration
	// Logger logs configuration changes and failures. May be nil.
	Logger *zap.Logger
}

// Delegated authenticates and authorizes requests of an extension server. It is safe for concurrent use.
type Delegated struct {
	client       *apiClient
	anonymous    bool
	paths        []string
	groups       []string
	startTimeout time.Duration
	proxyOnly    bool
	distrust     func(*x509.Certificate) bool
	log          *zap.Logger

	current atomic.Pointer[published]
	problem atomic.Pointer[error]
	ready   chan struct{}
	warned  time.Time // time of the last log message about a failed read
	// wanted holds a token if a request needs the ConfigMap to be read again.
	wanted chan struct{}

	tokens *tokenreview.Reviewer
	access *accessreview.Reviewer
}

// New returns a Delegated that refuses all requests until Run has read the ConfigMap.
func New(cfg Config) (*Delegated, error) {
	f, err := newAPIClient(cfg.Client)
	if err != nil {
		return nil, err
	}
	d := &Delegated{
		client:       f,
		anonymous:    cfg.AnonymousAllowed,
		paths:        cfg.AlwaysAllowPaths,
		groups:       cfg.AlwaysAllowGroups,
		startTimeout: cfg.StartTimeout,
		proxyOnly:    cfg.FrontProxyOnly,
		distrust:     cfg.Distrust,
		log:          cfg.Logger,
		ready:        make(chan struct{}),
		wanted:       make(chan struct{}, 1),
	}
	d.tokens, d.access = tokenreview.New(d.reviewToken), accessreview.New(d.reviewAccess)
	if d.paths == nil {
		d.paths = []string{"/healthz", "/readyz", "/livez"}
	}
	if d.groups == nil {
		d.groups = []string{user.SystemPrivilegedGroup}
	}
	if d.startTimeout <= 0 {
		d.startTimeout = time.Minute
	}
	d.log = cmp.Or(d.log, zap.NewNop())
	return d, nil
}

// Ready returns a channel that is closed when the ConfigMap has been read.
func (d *Delegated) Ready() <-chan struct{} { return d.ready }

// Stale returns why the last read of the ConfigMap failed, or nil if the current configuration is up to date. It is a
// readyz check.
func (d *Delegated) Stale() error {
	if p := d.problem.Load(); p != nil {
		return *p
	}
	return nil
}

// ClientCAs returns the authorities to advertise in a TLS handshake, so that clients select a suitable certificate.
// They are only a hint: AuthenticateRequest verifies the certificate. It returns nil before the ConfigMap has been
// read.
func (d *Delegated) ClientCAs() *x509.CertPool {
	if p := d.current.Load(); p != nil {
		return p.pool
	}
	return nil
}

// IsFrontProxy reports whether a certificate chain belongs to a front proxy; see authn.Trust.IsFrontProxy.
func (d *Delegated) IsFrontProxy(chain []*x509.Certificate) bool {
	p := d.current.Load()
	return p != nil && p.trust.IsFrontProxy(chain)
}

var errNotReady = errors.New("the authentication configuration of the front door has not been read yet")

// AuthenticateRequest returns the user of r, and removes the credentials and all identity headers from r. Every error
// is a 401.
func (d *Delegated) AuthenticateRequest(r *http.Request) (user.Info, error) {
	p := d.current.Load()
	if p == nil {
		return nil, errNotReady
	}
	claimed := p.trust.Headers().Claimed(r.Header)
	response, err := authn.Authenticate(r, p.trust, d.tokenReviewer())
	if err != nil && (claimed || presentsCertificate(r)) {
		d.requestRead()
	}
	switch {
	case err == nil:
		return response.User, nil
	case !errors.Is(err, authn.ErrNone):
		return nil, fmt.Errorf("authenticate: %w", err)
	case claimed:
		// Not treated as anonymous: the sender expects the headers to be used (attack row A13).
		return nil, errors.New("identity headers came without the certificate of a front proxy")
	case !d.anonymous:
		return nil, err
	}
	p.trust.Headers().Strip(r)
	return authn.Anonymous(), nil
}

// tokenReviewer returns nil if tokens are not accepted.
func (d *Delegated) tokenReviewer() authenticator.Token {
	if d.proxyOnly {
		return nil
	}
	return d.tokens
}

// Authorize reports whether u may perform the request described by info, and the reason. An error means that the
// front door made no decision. It is a 500 and never permission.
func (d *Delegated) Authorize(ctx context.Context, u user.Info, info *apirequest.RequestInfo) (allowed bool, reason string, err error) {
	if u == nil || info == nil {
		return false, "", errors.New("authorize: the request has no user or no meaning")
	}
	if slices.ContainsFunc(u.GetGroups(), func(g string) bool { return slices.Contains(d.groups, g) }) {
		return true, "", nil
	}
	if !info.IsResourceRequest && d.alwaysAllowed(info.Path) {
		return true, "", nil
	}
	if allowed, reason, err = d.access.Authorize(ctx, u, info); err != nil {
		return false, "", fmt.Errorf("authorize: %w", err)
	}
	return allowed, reason, nil
}

func (d *Delegated) alwaysAllowed(path string) bool {
	path = strings.TrimPrefix(path, "/")
	for _, p := range d.paths {
		p = strings.TrimPrefix(p, "/")
		if prefix, ok := strings.CutSuffix(p, "*"); ok && strings.HasPrefix(path, prefix) || path == p {
			return true
		}
	}
	return false
}

// reviewToken sends a TokenReview to the front door.
func (d *Delegated) reviewToken(ctx context.Context, review, reply *authenticationv1.TokenReview) error {
	return d.client.call(ctx, http.MethodPost, tokenreview.Path, nil, review, reply)
}

// reviewAccess sends a SubjectAccessReview to the front door.
func (d *Delegated) reviewAccess(ctx context.Context, review, reply *authorizationv1.SubjectAccessReview) error {
	return d.client.call(ctx, http.MethodPost, accessreview.Path, url.Values{"timeout": {askTimeout.String()}}, review, reply)
}
