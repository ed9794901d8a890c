package extension

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// Authenticator says who makes a request.
type Authenticator interface {
	// AuthenticateRequest returns who it is. An error means that nobody vouches for the request: it is answered 401,
	// and the error goes to the log, not to the client. For a trusted front proxy it calls NoteFrontProxy.
	AuthenticateRequest(r *http.Request) (user.Info, error)
}

// Authorizer says what they may.
type Authorizer interface {
	// Authorize answers for one request. An error means that the question could not be decided: it is answered 500,
	// and never taken for a yes.
	Authorize(ctx context.Context, u user.Info, info *apirequest.RequestInfo) (allowed bool, reason string, err error)
}

// Config makes a host.
type Config struct {
	// Resources are what is hosted. At least one.
	Resources []Resource
	// Authenticator and Authorizer guard every path but health. Required: there is no open host.
	Authenticator Authenticator
	Authorizer    Authorizer

	// BindAddress and Port are where the host listens. Port 0 takes a free one. Default address: 0.0.0.0.
	BindAddress string
	Port        int
	// GetCertificate returns the certificate that the host shows, as in tls.Config. Required, except with NoListener.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// NoListener makes Run serve nothing by itself: requests come through Handler.
	NoListener bool
	// ClientCAs are named to clients in the handshake, so that browsers and tools pick a certificate that will do.
	// Nothing is trusted by it. Optional.
	ClientCAs func() *x509.CertPool

	// Sources are what resources read from, shown in /readyz?verbose and /metrics. They never fail /readyz: a server whose
	// sources are away still answers with what it knows. Optional; it may answer differently each time.
	Sources func() []Source

	// Live and Ready are further checks of /livez and /readyz.
	Live, Ready []Check

	// MaxRequestsInFlight bounds requests being served, without watches; MaxWatches bounds those. What is beyond is
	// answered 429. Default 400 and 1000. Requests of system:masters, such as a front door's probes, always pass.
	MaxRequestsInFlight, MaxWatches int
	// MaxCachedBytes bounds the encoded lists that are kept for the next who asks. Default 16 MiB.
	MaxCachedBytes int
	// MaxBodyBytes bounds a request's body. Default 3 MiB, as kube-apiserver.
	MaxBodyBytes int64
	// RequestTimeout bounds a request that is not a watch. Default 60 s.
	RequestTimeout time.Duration
	// ShutdownDelay is how long the host keeps serving while /readyz already fails. Default 0.
	ShutdownDelay time.Duration
	// ShutdownTimeout bounds the wait for requests in flight once it has stopped accepting. Default 10 s.
	ShutdownTimeout time.Duration

	// Profiling serves /debug/pprof/ to those who may get that path.
	Profiling bool
	// Registry holds the metrics that /metrics shows. Default: a new one.
	Registry *prometheus.Registry
	// Logger is told of refusals and failures. AccessLog, when true, of every request too. Default: silence.
	Logger    *zap.Logger
	AccessLog bool
	// AuditLog receives an audit event for each request that has been answered, but for those of health paths: an Event of
	// audit.k8s.io/v1 as a line of JSON, at level Metadata and stage ResponseComplete, under the Audit-ID that the front door has in
	// its own audit log. Events are written one at a time, each by one Write, and the request ends when its event is written. What
	// cannot be written goes to Logger. Default: no audit events.
	AuditLog io.Writer
}

func (c *Config) withDefaults() (Config, error) {
	out := *c
	setDefault(&out.BindAddress, "0.0.0.0")
	setDefault(&out.MaxRequestsInFlight, 400)
	setDefault(&out.MaxWatches, 1000)
	setDefault(&out.MaxBodyBytes, 3<<20)
	setDefault(&out.MaxCachedBytes, 16<<20)
	setDefault(&out.RequestTimeout, time.Minute)
	setDefault(&out.ShutdownTimeout, 10*time.Second)
	if out.Registry == nil {
		out.Registry = prometheus.NewRegistry()
	}
	if out.Sources == nil {
		out.Sources = func() []Source { return nil }
	}
	out.Logger = cmp.Or(out.Logger, zap.NewNop())
	return out, out.validate()
}

func setDefault[V comparable](v *V, to V) {
	var zero V
	if *v == zero {
		*v = to
	}
}

func (c *Config) validate() error {
	switch {
	case len(c.Resources) == 0:
		return errors.New("no resources to host")
	case c.Authenticator == nil || c.Authorizer == nil:
		return errors.New("an authenticator and an authorizer are required")
	case c.GetCertificate == nil && !c.NoListener:
		return errors.New("a serving certificate is required")
	case net.ParseIP(c.BindAddress) == nil:
		return fmt.Errorf("bind address %q: must be an IP address", c.BindAddress)
	case c.Port < 0 || c.Port > 65535:
		return fmt.Errorf("port %d: must be between 0 and 65535", c.Port)
	}
	return nil
}
