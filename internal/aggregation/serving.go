package aggregation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"portico.dev/internal/httpengine"
	"portico.dev/internal/logging"
	"portico.dev/internal/overload"
	"portico.dev/internal/server"
)

// Serving contains the settings of both programs. Start with DefaultServing.
type Serving struct {
	// BindAddress and SecurePort are the address of the listener. An empty BindAddress is every address; port 0 picks a free one.
	BindAddress string
	SecurePort  int
	// EnableAggregatorRouting sends requests to the endpoints of a Service instead of to its cluster IP. Default
	// true: without it a dead endpoint is not noticed.
	EnableAggregatorRouting bool
	// Zone is the topology zone of this process. Endpoints of the same zone are preferred while one of them is
	// healthy. Default none.
	Zone string
	// EgressSelectorConfigFile configures the tunnels to other networks. Default none: all are reached directly.
	EgressSelectorConfigFile string
	// Dial replaces EgressSelectorConfigFile: it opens the connections to extension servers, to other replicas, to etcd, to
	// the API server of a gateway, and to the servers that flags name. It is for programs that simulate a network. Default nil.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// RequestTimeout ends requests that are not long-running. Default 60 s.
	RequestTimeout time.Duration
	// GoawayChance is the fraction of HTTP/2 requests that are answered with GOAWAY. Default 0.
	GoawayChance float64
	// ShutdownDelay is how long requests are served after /readyz has begun to fail at shutdown. ShutdownGrace limits
	// the requests in flight after that.
	ShutdownDelay, ShutdownGrace time.Duration
	// AccessLog logs one line for each request, in AccessLogFile if it has a path and otherwise in the log of the program.
	AccessLog     bool
	AccessLogFile logging.File
	// MemoryLimit is a quantity such as 2Gi. Near it requests are rejected. Default the limit of the control group,
	// or GOMEMLIMIT if that is less; 0 disables it.
	MemoryLimit string
	// MaxRequestsInFlight and MaxMutatingRequestsInFlight limit reads and writes that are not long-running; a
	// negative value disables the limit. With API Priority and Fairness, their sum is the concurrency that priority
	// levels share. Default 400 and 200. Each program binds these flags itself, because their meanings differ.
	MaxRequestsInFlight, MaxMutatingRequestsInFlight int
	// HTTPEngine serves clients, BackendEngine calls extension servers. Default Portico's own. internal/httpengine/README.md
	// lists the limits of net/http.
	HTTPEngine, BackendEngine httpengine.Name
}

// DefaultServing returns the defaults that both programs share.
func DefaultServing() Serving {
	return Serving{
		EnableAggregatorRouting: true, RequestTimeout: time.Minute, MaxRequestsInFlight: 400, MaxMutatingRequestsInFlight: 200,
		HTTPEngine: httpengine.Default(), BackendEngine: httpengine.Default(), AccessLogFile: logging.File{MaxSize: 100},
	}
}

// AddListenFlags binds the settings of the listener to flags. graceFlag is the flag of ShutdownGrace, which has
// another name in each program.
func (s *Serving) AddListenFlags(fs *pflag.FlagSet, graceFlag string) {
	fs.StringVar(&s.BindAddress, "bind-address", s.BindAddress, "IP address to listen on")
	fs.IntVar(&s.SecurePort, "secure-port", s.SecurePort, "port to listen on with TLS; 0 picks a free one")
	fs.DurationVar(&s.ShutdownDelay, "shutdown-delay-duration", s.ShutdownDelay, "how long to keep serving after /readyz begins to fail at shutdown")
	fs.DurationVar(&s.ShutdownGrace, graceFlag, s.ShutdownGrace, "how long requests in flight may take to finish at shutdown")
}

// AddRequestFlags binds the settings of requests to flags.
func (s *Serving) AddRequestFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&s.EnableAggregatorRouting, "enable-aggregator-routing", s.EnableAggregatorRouting, "send requests to the endpoints of a Service instead of to its cluster IP")
	fs.StringVar(&s.Zone, "zone", s.Zone, "topology zone of this server; endpoints of extension servers in the same zone are preferred")
	fs.DurationVar(&s.RequestTimeout, "request-timeout", s.RequestTimeout, "timeout of requests that are not long-running")
	fs.StringVar(&s.MemoryLimit, "memory-limit", s.MemoryLimit, "memory that this process may use, such as 2Gi. Near the limit, requests are rejected and connections closed, privileged ones last. Default the limit of the cgroup or GOMEMLIMIT, whichever is lower; 0 disables it")
	fs.Float64Var(&s.GoawayChance, "goaway-chance", s.GoawayChance, "fraction of HTTP/2 requests that are answered with GOAWAY, so that clients reconnect and spread over replicas; at most 0.02")
	f := &s.AccessLogFile
	logging.AccessDestination{Enabled: &s.AccessLog, Path: &f.Path}.AddTo(fs)
	fs.IntVar(&f.MaxAge, "access-log-maxage", f.MaxAge, "days that rotated files of --access-log are kept; 0 keeps them forever")
	fs.IntVar(&f.MaxBackups, "access-log-maxbackup", f.MaxBackups, "number of rotated files of --access-log that are kept; 0 keeps all")
	fs.IntVar(&f.MaxSize, "access-log-maxsize", f.MaxSize, "size in megabytes at which the file of --access-log is rotated")
	fs.BoolVar(&f.Compress, "access-log-compress", f.Compress, "compress rotated files of --access-log with gzip")
}

// AddEngineFlags binds the choice between HTTP implementations to flags. `aggregator drill run` has only these flags.
func (s *Serving) AddEngineFlags(fs *pflag.FlagSet) {
	fs.Var(&s.HTTPEngine, "http-engine", "HTTP implementation that serves clients: portico, or library (Go's net/http). See internal/httpengine/README.md for its limitations")
	fs.Var(&s.BackendEngine, "backend-engine", "HTTP implementation that calls extension servers: portico or library")
}

// Validate reports every invalid setting by its flag.
func (s *Serving) Validate(graceFlag string, bad func(flag, format string, args ...any)) {
	if s.BindAddress != "" && net.ParseIP(s.BindAddress) == nil {
		bad("bind-address", "%q is not an IP address", s.BindAddress)
	}
	if s.SecurePort < 0 || s.SecurePort > 65535 {
		bad("secure-port", "%d is not a port; use 1 to 65535, or 0 for a free one", s.SecurePort)
	}
	if s.RequestTimeout <= 0 {
		bad("request-timeout", "%s is not positive", s.RequestTimeout)
	}
	if !(s.GoawayChance >= 0 && s.GoawayChance <= server.MaxGoawayChance) { // NaN is neither
		bad("goaway-chance", "%v is not from 0 to %v", s.GoawayChance, server.MaxGoawayChance)
	}
	if s.ShutdownDelay < 0 {
		bad("shutdown-delay-duration", "%s is negative", s.ShutdownDelay)
	}
	if s.ShutdownGrace <= 0 {
		bad(graceFlag, "%s is not positive", s.ShutdownGrace)
	}
	for _, f := range []struct {
		flag  string
		value int
	}{
		{"access-log-maxage", s.AccessLogFile.MaxAge}, {"access-log-maxbackup", s.AccessLogFile.MaxBackups}, {"access-log-maxsize", s.AccessLogFile.MaxSize},
	} {
		if f.value < 0 {
			bad(f.flag, "%d is negative", f.value)
		}
	}
	if err := overload.CheckSetting(s.MemoryLimit); err != nil {
		bad("memory-limit", "%v", err)
	}
}

// Listen opens the listener at BindAddress and SecurePort.
func (s *Serving) Listen() (net.Listener, error) {
	address := net.JoinHostPort(s.BindAddress, strconv.Itoa(s.SecurePort))
	listener, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s is in use by another process; choose another port with --secure-port, or 0 for a free one", address)
	case err != nil:
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return listener, nil
}
