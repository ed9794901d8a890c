package delegated

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/singleflight"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"portico.dev/internal/auth/authn"
	"portico.dev/internal/auth/ttlcache"
)

// Config says which front door to ask, and what is decided without asking.
type Config struct {
	// Client reaches the front door. Its identity needs the Role extension-apiserver-authentication-reader in
	// kube-system and the ClusterRole system:auth-delegator. Required.
	Client *rest.Config
	// AnonymousAllowed lets in requests that show no credential, as system:anonymous; authorization decides what that is
	// good for.
	AnonymousAllowed bool
	// AlwaysAllowPaths are non-resource paths that need no authorization; a trailing * makes a prefix, the leading slash
	// may be missing. Nil: /healthz, /readyz and /livez.
	AlwaysAllowPaths []string
	// AlwaysAllowGroups need no authorization. Nil: system:masters.
	AlwaysAllowGroups []string
	// FrontProxyOnly makes certificates of front proxies the only credentials that count: client certificates and tokens identify
	// nobody, and TokenReview is never asked. It is for a server that does not authorize and leaves that to who it passes requests to.
	FrontProxyOnly bool
	// Distrust, if set, reports the authorities among the published front-proxy CAs that must not be believed, such as the
	// server's own: with it, a request that comes back would be believed.
	Distrust func(*x509.Certificate) bool
	// StartTimeout is how long Run waits for a front door that is not there yet, or has not published its ConfigMap.
	// Default one minute.
	StartTimeout time.Duration
	// Logger logs what is read and what fails. May be nil.
	Logger *zap.Logger
}

// Delegated answers for an extension server. It is safe for concurrent use.
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
	warned  time.Time // when follow logged the last failed read
	// wanted has a token when a request needs the ConfigMap to be read again.
	wanted chan struct{}

	tokens   *ttlcache.Cache[[sha256.Size]byte, reviewedToken]
	access   *ttlcache.Cache[[sha256.Size]byte, decision]
	inFlight singleflight.Group
}

const (
	rememberTokens = 4096
	rememberAccess = 8192
)

// New returns a Delegated that refuses everything until Run has read the ConfigMap.
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
		tokens:       ttlcache.New[[sha256.Size]byte, reviewedToken](rememberTokens),
		access:       ttlcache.New[[sha256.Size]byte, decision](rememberAccess),
	}
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

// Ready is closed once the ConfigMap has been read.
func (d *Delegated) Ready() <-chan struct{} { return d.ready }

// Stale is why the last look at the ConfigMap failed, nil when what is in force is what it says. It is for readyz.
func (d *Delegated) Stale() error {
	if p := d.problem.Load(); p != nil {
		return *p
	}
	return nil
}

// ClientCAs are the authorities to name in a TLS handshake, so that clients choose a certificate that can count. It is
// a hint; the decision is AuthenticateRequest's. Nil before the ConfigMap has been read.
func (d *Delegated) ClientCAs() *x509.CertPool {
	if p := d.current.Load(); p != nil {
		return p.pool
	}
	return nil
}

// IsFrontProxy reports whether a certificate chain is a front proxy's (authn.Trust.IsFrontProxy).
func (d *Delegated) IsFrontProxy(chain []*x509.Certificate) bool {
	p := d.current.Load()
	return p != nil && p.trust.IsFrontProxy(chain)
}

var errNotReady = errors.New("the authentication configuration of the front door has not been read yet")

// AuthenticateRequest returns who sent r, and removes the credentials and every identity header from it. Every error
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
		// Never anonymous: the sender expects that the headers count (attack row A13).
		return nil, errors.New("identity headers came without the certificate of a front proxy")
	case !d.anonymous:
		return nil, err
	}
	p.trust.Headers().Strip(r)
	return authn.Anonymous(), nil
}

// tokenReviewer is nil where tokens identify nobody.
func (d *Delegated) tokenReviewer() authenticator.Token {
	if d.proxyOnly {
		return nil
	}
	return authenticator.TokenFunc(d.reviewToken)
}

// Authorize reports whether u may do what info says, and why or why not. An error means that the front door gave no
// answer; it is a 500, and never permission.
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
	spec := accessSpec(u, info)
	answer, err := d.reviewAccess(ctx, spec)
	if err != nil {
		return false, "", fmt.Errorf("authorize: %w", err)
	}
	return answer.allowed, answer.reason, nil
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

// decision is the front door's answer to a SubjectAccessReview.
type decision struct {
	allowed bool
	reason  string
}

func decided(s authorizationv1.SubjectAccessReviewStatus) (decision, error) {
	if s.Allowed && s.Denied {
		return decision{}, errors.New("the front door both allowed and denied")
	}
	return decision{allowed: s.Allowed, reason: s.Reason}, nil
}
