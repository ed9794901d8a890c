package transport

import (
	"cmp"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/engine"
	"portico.dev/internal/metrics"
	"portico.dev/internal/pki"
)

// MaxReplayTotal is the default of Options.MaxReplayTotal.
const MaxReplayTotal = 64 << 20

// Options are how a Set reaches backends. The zero value of each field means its default.
type Options struct {
	// Engine is the implementation of HTTP that reaches backends. Default engine.Portico. With engine.Library no parser of ours
	// reads what backends send, and some of what hostile backends do is borne (docs/http-engines.md).
	Engine engine.Name
	// Certificate is what we present to every backend: the front-proxy client certificate. Nil: none.
	Certificate *pki.KeyPair
	// AllowLoopback lets endpoints of any Service be on loopback. Default false: on a machine that runs other
	// services such an endpoint is a way into them.
	AllowLoopback bool
	// Allow are networks that may be dialled although the guard refuses them otherwise. Our own listeners stay refused.
	Allow []netip.Prefix
	// OwnAddresses are the host:port pairs that this process listens on; a backend that resolves to one is a loop.
	// An unspecified host means every address of this machine.
	OwnAddresses func() []string
	// Tunnel makes the connections, instead of this machine's network. Default nil: they are direct. The guard applies as it does
	// otherwise; names of hosts are resolved at the other end.
	Tunnel *Tunnel
	// Zone is the zone this process runs in. Endpoints of the same zone are preferred while one of them is well.
	Zone string

	// DialTimeout bounds a TCP connection. Default 2 s: another endpoint is worth more than a lost SYN.
	DialTimeout time.Duration
	// TLSTimeout bounds a handshake. Default 5 s.
	TLSTimeout time.Duration
	// HeaderTimeout bounds the time from a written request to its response headers. Default 60 s. Requests usually
	// have a shorter deadline in their context.
	HeaderTimeout time.Duration
	// IdleTimeout closes a connection without requests. Default 90 s.
	IdleTimeout time.Duration
	// PingAfter is how long an HTTP/2 connection may be silent before it is pinged. Default 500 ms: with PingTimeout it
	// bounds how long a request waits for an endpoint that fell silent, which must stay below 2 s. An endpoint that no
	// client has used for IdleTimeout is pinged half as often.
	PingAfter time.Duration
	// PingTimeout is how long a ping may stay unanswered before the connection is given up. Default 1 s. Time in which
	// this process did not get to run does not count.
	PingTimeout time.Duration
	// LeaveGrace is how long requests in flight may stay on a connection whose endpoint or identity is gone.
	// Default 30 s.
	LeaveGrace time.Duration

	// MaxHeaderBytes bounds response headers. Default 256 KiB.
	MaxHeaderBytes int64
	// MaxConns bounds connections of one pool to one endpoint. Default 64.
	MaxConns int
	// MaxInFlight bounds the requests that one backend may hold (Backend.Admit). Default 300.
	MaxInFlight int
	// MaxReplayBytes bounds what one request may keep of its body for a repetition. Default 1 MiB.
	MaxReplayBytes int64
	// MaxReplayTotal bounds what all requests together may keep. Default 64 MiB.
	MaxReplayTotal int64

	// OnFailure, if set, is told of every failed or lost connection, on the goroutine that met it, and of requests that
	// wait while nothing is received from the backend (Backend.Silence). It must not block.
	OnFailure func(*Backend, error)
	// OnSuccess, if set, is told that a backend answered a request, whatever the status, at most once a second for each
	// backend. Probes do not count. It is called on the way of a request and must not block.
	OnSuccess func(*Backend)
	// Metrics, if set, counts.
	Metrics *metrics.Backends
	// Logger, if set, says what happened to connections and endpoints.
	Logger *zap.Logger
}

func (o Options) withDefaults() Options {
	orDefault(&o.Engine, engine.Portico)
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

// Endpoint is one address where a backend may be reached.
type Endpoint struct {
	// Address is host:port. The host may be a DNS name (ExternalName).
	Address string `json:"address"`
	// Zone is the endpoint's zone, empty when unknown.
	Zone string `json:"zone,omitempty"`
	// Terminating endpoints are used only while there is no other.
	Terminating bool `json:"terminating,omitempty"`
}

// Spec is a backend as it is registered.
type Spec struct {
	// Name is "namespace/name:port" of the Service.
	Name string
	// ServerName is what the certificate must prove: <service>.<namespace>.svc.
	ServerName string
	// CABundle is the PEM bundle the certificate must chain to. Empty: the system's roots.
	CABundle []byte
	// Insecure accepts any certificate (insecureSkipTLSVerify).
	Insecure bool
	// LoopbackOK lets this backend be on loopback. It is set for ExternalName, where an administrator wrote the name.
	LoopbackOK bool
	// MaxInFlight overrides Options.MaxInFlight for this backend. Default 0: no override.
	MaxInFlight int
	// Endpoints are where it may be reached now.
	Endpoints []Endpoint
}
