package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/engine"
	"portico.dev/internal/metrics"
	"portico.dev/internal/overload"
	"portico.dev/internal/proxy"
)

// Config is a listening server.
type Config struct {
	// Listener is already bound, so that a port in use is known before anything else starts.
	Listener net.Listener
	TLS      *tls.Config
	// Engine is the implementation of HTTP. Default Portico's own.
	Engine  engine.Name
	Handler http.Handler
	Health  *Health
	Drainer *Drainer
	// Proxy has the upgraded connections, which the HTTP servers do not track any more.
	Proxy  *proxy.Proxy
	Logger *zap.Logger
	// Overload closes connections while memory is short. May be nil.
	Overload *overload.Monitor
	// OverloadMetrics counts them. Memory is the limit; the zero value is none.
	OverloadMetrics *metrics.Overload
	Memory          overload.Limit
	// ShutdownDelay keeps serving after readyz has turned false, for load balancers to notice. Default 0.
	ShutdownDelay time.Duration
	// ShutdownGrace is how long requests in flight may take to finish. Default 10 s.
	ShutdownGrace time.Duration
}

// Limits on a connection. Attack rows D1 to D3.
const (
	maxHeaderBytes       = 64 << 10
	maxConcurrentStreams = 100 // kube-apiserver's
)

// limits are how long a connection may take. Attack row D5.
type limits struct {
	handshake  time.Duration // to get through TLS
	readHeader time.Duration // to send the head of a request
	idle       time.Duration // without a request
	stall      time.Duration // with an answer that it does not take
}

var defaultLimits = limits{handshake: 10 * time.Second, readHeader: 10 * time.Second, idle: 90 * time.Second, stall: 30 * time.Second}

// Server accepts connections and hands their requests to the chain.
type Server struct {
	c      Config
	limits limits
	ready  chan struct{}
}

// New allocates a server.
func New(c Config) *Server {
	if c.ShutdownGrace <= 0 {
		c.ShutdownGrace = 10 * time.Second
	}
	return &Server{c: c, limits: defaultLimits, ready: make(chan struct{})}
}

// Ready is closed when connections are accepted.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Run serves until ctx ends, then drains: readyz turns false; in the second half of the shutdown delay, clients are asked to come
// by other connections; the listener closes and clients are told to go elsewhere (GOAWAY), watches end cleanly, requests that were
// accepted finish, upgraded streams get what is left of the grace.
func (s *Server) Run(ctx context.Context) error {
	logf := s.c.Logger.Sugar().Debugf // what clients do wrong is of interest only when asked for
	clients := engine.NewServer(s.c.Engine, engine.ServerConfig{
		Handler: s.c.Handler, MaxConcurrentStreams: maxConcurrentStreams, MaxHeaderBytes: maxHeaderBytes,
		HeaderTimeout: s.limits.readHeader, IdleTimeout: s.limits.idle,
		PingAfter: 30 * time.Second, PingTimeout: 15 * time.Second,
		StallTimeout: s.limits.stall, // for windows; writes that wait for the kernel are stallConn's business
		Refuse:       s.refuse(),
		Logf:         logf,
	})
	a := newAcceptor(s.c.Listener, s.c.TLS, s.limits, s.handshakes(), clients.Serve)
	if s.c.Overload != nil {
		defer s.c.Overload.Register(&connCloser{clients: clients, metrics: s.c.OverloadMetrics})()
	}
	failed := make(chan error, 1)
	go func() { failed <- a.Run() }()
	close(s.ready)
	select {
	case err := <-failed:
		a.Close()
		clients.Close()
		return fmt.Errorf("serve on %s: %w", s.c.Listener.Addr(), err)
	case <-ctx.Done():
	}
	s.shutdown(a, clients)
	ending, cancel := context.WithTimeout(context.Background(), handlerGrace)
	defer cancel()
	if a.Wait(ending) != nil {
		s.c.Logger.Warn("handlers of requests that were cut off still run", zap.Duration("for", handlerGrace))
	}
	return <-failed
}

// handlerGrace is how long handlers may take to notice that their connection is gone.
const handlerGrace = 5 * time.Second

func (s *Server) shutdown(a *acceptor, clients engine.Server) {
	s.c.Health.Stopping()
	// In the first half load balancers find out; in the second, connections move.
	time.Sleep(s.c.ShutdownDelay / 2)
	s.c.Drainer.Leave()
	time.Sleep(s.c.ShutdownDelay - s.c.ShutdownDelay/2)
	ctx, cancel := context.WithTimeout(context.Background(), s.c.ShutdownGrace)
	defer cancel()
	a.Close()
	s.c.Drainer.EndLongRunning()
	// Shutdown waits for every request that a connection has accepted, however late its handler begins. The drainer refuses requests
	// only after it: before, it refused some that had been accepted.
	err := errors.Join(clients.Shutdown(ctx), s.c.Drainer.Drain(ctx))
	cut := s.c.Proxy.Drain(ctx)
	if s.c.Drainer.busy() || cut > 0 { // otherwise only idle connections are left
		s.c.Logger.Warn("requests were cut off at the end of the shutdown grace",
			zap.Duration("grace", s.c.ShutdownGrace), zap.Int("upgraded", cut), zap.Error(err))
	}
	clients.Close() // whatever is left has had its grace
}

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
