package transport

import (
	"cmp"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/httpengine"
	"portico.dev/internal/metrics"
	"portico.dev/internal/pki"
)

// MaxReplayTotal is the default of Options.MaxReplayTotal.
const MaxReplayTotal = 64 << 20

// Options configure a Set. The zero value of each field selects its default.
type Options struct {
	// Engine is the HTTP implementation for connections to backends. Default engine.Portico. With engine.Library no
	// Portico parser reads data from backends, and some attacks by hostile backends are not detected
	// (internal/httpengine/README.md).
	Engine httpengine.Name
	// Parent is a Set with which this one shares the timer for connections and the limit MaxReplayTotal. It must be closed
	// last. May be nil.
	Parent *Set
	// Certificate is the client certificate for all backends: the front-proxy certificate. If nil, none is presented.
	Certificate *pki.KeyPair
	// AllowLoopback permits loopback endpoints for all Services. Default false, because such an endpoint gives access
	// to other services on this machine.
	AllowLoopback bool
	// Allow are networks that may be dialed although the guard refuses them by default. This server's own listeners
	// remain refused.
	Allow []netip.Prefix
	// OwnAddresses returns the host:port pairs on which this process listens. A backend that resolves to one is a
	// loop. An unspecified host matches every address of this machine.
	OwnAddresses func() []string
	// Tunnel opens connections through a tunnel. If nil, connections are direct. The guard applies in both cases.
	// With a tunnel, host names are resolved at its other end.
	Tunnel *Tunnel
	// Zone is the zone of this process. Healthy endpoints in the same zone are preferred.
	Zone string

	// DialTimeout limits the time for a TCP connection. Default 2 s, because trying another endpoint is better than
	// waiting for a lost SYN.
	DialTimeout time.Duration
	// TLSTimeout limits the time for a TLS handshake. Default 5 s.
	TLSTimeout time.Duration
	// HeaderTimeout limits the time from a written request to its response headers. Default 60 s. The contexts of
	// requests usually have an earlier deadline.
	HeaderTimeout time.Duration
	// IdleTimeout is the time after which a connection without requests is closed. Default 90 s.
	IdleTimeout time.Duration
	// PingAfter is how long an HTTP/2 connection may be silent before it is pinged. Default 500 ms. Together with
	// PingTimeout it limits how long a request waits for an endpoint that became silent, which must stay below 2 s.
	// An endpoint that no client has used for IdleTimeout is pinged less often (unusedPingEvery).
	PingAfter time.Duration
	// PingTimeout is how long a ping may stay unanswered before the connection is closed. Default 1 s. Time during
	// which this process is suspended does not count.
	PingTimeout time.Duration
	// LeaveGrace is how long requests in flight may continue on a connection after its endpoint or identity was
	// removed. Default 30 s.
	LeaveGrace time.Duration

	// MaxHeaderBytes limits response headers. Default 256 KiB.
	MaxHeaderBytes int64
	// MaxConns limits the connections of one pool to one endpoint. Default 64.
	MaxConns int
	// MaxInFlight limits the requests in flight to one backend (Backend.Admit). Default 300.
	MaxInFlight int
	// MaxReplayBytes limits how much of a request's body is kept for a repetition. Default 1 MiB.
	MaxReplayBytes int64
	// MaxReplayTotal limits the kept bodies of all requests together. Default 64 MiB.
	MaxReplayTotal int64

	// OnFailure is called for every failed or lost connection, on the goroutine that observes it, and for requests
	// that wait while nothing is received from the backend (Backend.Silence). It must not block. May be nil.
	OnFailure func(*Backend, error)
	// OnSuccess is called when a backend has responded to a request, with any status, at most once per second and
	// backend. Probes do not count. It is called while processing a request and must not block. May be nil.
	OnSuccess func(*Backend)
	// Metrics counts requests and connections. May be nil.
	Metrics *metrics.Backends
	// Logger logs events of connections and endpoints. May be nil.
	Logger *zap.Logger
}

func (o Options) withDefaults() Options {
	orDefault(&o.Engine, httpengine.Default())
	orDefault(&o.DialTimeout, 2*time.Second)
	orDefault(&o.TLSTimeout, 5*time.Second)
	orDefault(&o.HeaderTimeout, time.Minute)
	orDefault(&o.IdleTimeout, 90*time.Second)
	orDefault(&o.PingAfter, 500*time.Millisecond)
	orDefault(&o.PingTimeout, time.Second)
	orDefault(&o.LeaveGrace, 30*time.Second)
	orDefault(&o.MaxHeaderBytes, 256<<10)
	orDefault(&o.MaxConns, 64)
	orDefault(&o.MaxInFlight, 300)
	orDefault(&o.MaxReplayBytes, 1<<20)
	orDefault(&o.MaxReplayTotal, MaxReplayTotal)
	if o.OwnAddresses == nil {
		o.OwnAddresses = func() []string { return nil }
	}
	o.Logger = cmp.Or(o.Logger, zap.NewNop())
	return o
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Endpoint is an address of a backend.
type Endpoint struct {
	// Address is host:port. The host may be a DNS name (ExternalName).
	Address string `json:"address"`
	// Zone is the endpoint's zone, empty if unknown.
	Zone string `json:"zone,omitempty"`
	// Terminating endpoints are used only if there are no other endpoints.
	Terminating bool `json:"terminating,omitempty"`
}

// Spec is the registration of a backend.
type Spec struct {
	// Name is "namespace/name:port" of the Service.
	Name string
	// ServerName is the required name in the certificate: <service>.<namespace>.svc.
	ServerName string
	// CABundle contains the CAs of the certificate in PEM. Empty uses the system's roots.
	CABundle []byte
	// Insecure accepts any certificate (insecureSkipTLSVerify).
	Insecure bool
	// Certificate overrides Options.Certificate unless it is nil. It is part of the backend's identity.
	Certificate *pki.KeyPair
	// LoopbackOK permits loopback endpoints for this backend. It is set for ExternalName Services, in which an
	// administrator wrote the name.
	LoopbackOK bool
	// MaxInFlight overrides Options.MaxInFlight for this backend unless it is 0.
	MaxInFlight int
	// Endpoints are the current addresses.
	Endpoints []Endpoint
}
