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

// Authenticator authenticates requests.
type Authenticator interface {
	// AuthenticateRequest returns the user who makes the request. If it returns an error, the host responds with 401 and logs
	// the error; the client does not see it. For a request of a trusted front proxy, it calls NoteFrontProxy.
	AuthenticateRequest(r *http.Request) (user.Info, error)
}

// Authorizer authorizes requests.
type Authorizer interface {
	// Authorize decides about one request. If it returns an error, the request is rejected with 500, even if allowed is true.
	Authorize(ctx context.Context, u user.Info, info *apirequest.RequestInfo) (allowed bool, reason string, err error)
}

// Config configures a Host.
type Config struct {
	// Resources are the hosted resources. At least one is required.
	Resources []Resource
	// Authenticator and Authorizer guard every path except the health endpoints. Both are required.
	Authenticator Authenticator
	Authorizer    Authorizer

	// BindAddress and Port are the address of the listener. Port 0 selects a free port. Default address: 0.0.0.0.
	BindAddress string
	Port        int
	// GetCertificate returns the serving certificate, as in tls.Config. Required, except with NoListener.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// NoListener disables the listener of Run. The program serves requests through Handler.
	NoListener bool
	// ClientCAs returns the CAs that the host names to clients in the TLS handshake, so that browsers and tools choose a
	// suitable certificate. It does not establish trust. Optional.
	ClientCAs func() *x509.CertPool

	// Sources returns the data sources of the resources, which are reported in /readyz?verbose and /metrics. A failed source
	// never fails /readyz, because the server can still serve the data that it has. The result may differ between calls.
	// Optional.
	Sources func() []Source

	// Live and Ready are additional checks of /livez and /readyz.
	Live, Ready []Check

	// MaxRequestsInFlight limits concurrent requests, except watches and connect requests, which MaxWatches limits. Requests
	// beyond a limit get 429. Defaults: 400 requests and 1000 watches. Requests of system:masters, such as a front door's
	// probes, are not limited.
	MaxRequestsInFlight, MaxWatches int
	// MaxCachedBytes limits the total size of cached encoded lists. Default: 16 MiB.
	MaxCachedBytes int
	// MaxBodyBytes limits the size of a request body. Default: 3 MiB, as in kube-apiserver.
	MaxBodyBytes int64
	// RequestTimeout limits the duration of a request other than a watch or a connect request. Default: 60 s.
	RequestTimeout time.Duration
	// ShutdownDelay is how long the host keeps serving after /readyz has begun to fail. Default: 0.
	ShutdownDelay time.Duration
	// ShutdownTimeout limits the wait for requests in flight after the listener has closed. Default: 10 s.
	ShutdownTimeout time.Duration

	// Profiling serves /debug/pprof/ to callers who are authorized for the path.
	Profiling bool
	// Registry contains the metrics that /metrics serves. Default: a new registry.
	Registry *prometheus.Registry
	// Logger logs rejected requests and failures, and every request if AccessLog is true. Default: no logging.
	Logger    *zap.Logger
	AccessLog bool
	// AccessLogger logs every request if AccessLog is true. Default: Logger.
	AccessLogger *zap.Logger
	// AuditLog receives one audit event for each finished request, except requests to the health endpoints. An event is an
	// Event of audit.k8s.io/v1 as one line of JSON, at level Metadata and stage ResponseComplete, with the Audit-ID that the
	// front door uses in its own audit log. Writes are serialized, with one Write per event, and a request ends after its
	// event has been written. Write errors are logged. Default: no audit events.
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
	out.AccessLogger = cmp.Or(out.AccessLogger, out.Logger)
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
