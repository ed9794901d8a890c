package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico.dev/internal/engine"
	"portico.dev/internal/httpmsg"
	"portico.dev/internal/logging"
	"portico.dev/internal/metrics"
	"portico.dev/internal/overload"
	"portico.dev/internal/proxy"
	"portico.dev/internal/respond"
)

// Config is a listening server.
type Config struct {
	// Listener is already bound, so that a port in use is known before anything else starts.
	Listener net.Listener
	// Hold is how long connections wait to be accepted until Run begins. It is for a listener that is there before and after this process,
	// so that clients see a restart as a delay. Default 0.
	Hold time.Duration
	TLS  *tls.Config
	// Engine is the implementation of HTTP. Default Portico's own.
	Engine engine.Name
	// MaxConcurrentStreams bounds the requests at once on an HTTP/2 connection. Default 100.
	MaxConcurrentStreams int
	Handler              http.Handler
	Health               *Health
	Drainer              *Drainer
	// Proxy has the upgraded connections, which the HTTP servers do not track any more.
	Proxy  *proxy.Proxy
	Logger *zap.Logger
	// Overload closes connections while memory is short. May be nil.
	Overload *overload.Monitor
	// OverloadMetrics counts them. Memory is the limit; the zero value is none.
	OverloadMetrics *metrics.Overload
	Memory          overload.Limit
	// LargeHeaders grants memory for headers beyond 64 KiB or httpmsg.MaxFields. Nil: larger ones are refused.
	LargeHeaders *HeaderMemory
	// ShutdownDelay keeps serving after readyz has turned false, for load balancers to notice. Default 0.
	ShutdownDelay time.Duration
	// ShutdownGrace is how long requests in flight may take to finish. Default 10 s.
	ShutdownGrace time.Duration
}

// Limits on a connection. Attack rows D1 to D3.
const (
	maxHeaderBytes       = httpmsg.MaxHeader
	maxConcurrentStreams = 100 // kube-apiserver's; the default of Config.MaxConcurrentStreams
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
	c        Config
	limits   limits
	ready    chan struct{}
	open     atomic.Bool // requests are served by the chain
	accepts  chan struct{}
	acceptor *acceptor
	clients  engine.Server
}

// New allocates a server.
func New(c Config) *Server {
	if c.ShutdownGrace <= 0 {
		c.ShutdownGrace = 10 * time.Second
	}
	return &Server{c: c, limits: defaultLimits, ready: make(chan struct{}), accepts: make(chan struct{})}
}

// Ready is closed when requests are served.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Accepts is closed when connections are accepted, or held.
func (s *Server) Accepts() <-chan struct{} { return s.accepts }

// Accept accepts connections until ctx ends, so that clients and load balancers are told that this server is starting, and why it is
// not ready: until Run, requests are answered by startingHandler. It must begin before Run, and its ctx end after that of Run.
func (s *Server) Accept(ctx context.Context) error {
	logf := logging.Limited(s.c.Logger).Sugar().Debugf // what clients do wrong is of interest only when asked for
	config := engine.ServerConfig{
		Handler: s.handler(), MaxConcurrentStreams: cmp.Or(s.c.MaxConcurrentStreams, maxConcurrentStreams), MaxHeaderBytes: maxHeaderBytes,
		HeaderTimeout: s.limits.readHeader, IdleTimeout: s.limits.idle,
		PingAfter: 30 * time.Second, PingTimeout: 15 * time.Second,
		StallTimeout: s.limits.stall, // for windows; writes that wait for the kernel are stallConn's business
		Refuse:       s.refuse(),
		Logf:         logf,
	}
	if s.c.LargeHeaders != nil {
		config.LargeHeaders = s.c.LargeHeaders
	}
	s.clients = engine.NewServer(s.c.Engine, config)
	s.acceptor = newAcceptor(s.c.Listener, s.c.TLS, s.limits, s.handshakes(), s.clients.Begin)
	if s.c.Overload != nil {
		defer s.c.Overload.Register(&connCloser{clients: s.clients, metrics: s.c.OverloadMetrics})()
	}
	close(s.accepts)
	s.hold(ctx)
	ended := s.acceptor.Start()
	var err error
	select {
	case err = <-ended:
		if err != nil {
			err = fmt.Errorf("serve on %s: %w", s.c.Listener.Addr(), err)
			break
		}
		<-ctx.Done() // Run has closed the listener
	case <-ctx.Done():
	}
	s.acceptor.Close()
	s.clients.Close() // all that Run has not ended already
	ending, cancel := context.WithTimeout(context.Background(), handlerGrace)
	defer cancel()
	if s.acceptor.Wait(ending) != nil {
		s.c.Logger.Warn("handlers of requests that were cut off still run", zap.Duration("for", handlerGrace))
	}
	return err
}

// hold returns when Run has begun, or connections have waited long enough.
func (s *Server) hold(ctx context.Context) {
	if s.c.Hold <= 0 {
		return
	}
	enough := time.NewTimer(s.c.Hold)
	defer enough.Stop()
	select {
	case <-s.ready:
	case <-enough.C:
		s.c.Logger.Warn("the front door is still starting: connections are accepted, and requests are answered 503", zap.Duration("after", s.c.Hold))
	case <-ctx.Done():
	}
}

// Run serves requests until ctx ends, then drains: readyz turns false; in the second half of the shutdown delay, clients are asked to come
// by other connections; the listener closes and clients are told to go elsewhere (GOAWAY), watches end cleanly, requests that were
// accepted finish, upgraded streams get what is left of the grace.
func (s *Server) Run(ctx context.Context) error {
	<-s.accepts
	s.open.Store(true)
	close(s.ready)
	<-ctx.Done()
	s.shutdown(s.acceptor, s.clients)
	ending, cancel := context.WithTimeout(context.Background(), handlerGrace)
	defer cancel()
	if s.acceptor.Wait(ending) != nil {
		s.c.Logger.Warn("handlers of requests that were cut off still run", zap.Duration("for", handlerGrace))
	}
	return nil
}

// handler is the chain once Run has begun.
func (s *Server) handler() http.Handler {
	starting := startingHandler(s.c.Health)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.open.Load() {
			s.c.Handler.ServeHTTP(w, r)
			return
		}
		starting.ServeHTTP(w, r)
	})
}

// startingHandler answers requests for health, so that probes learn that the process lives, and that and why it is not ready: to everybody,
// since nobody can be authenticated yet, and so not for single checks. All others are asked to come again.
func startingHandler(health http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, r = newRequestContext(r)
		switch r.URL.Path {
		case "/livez", "/readyz", "/healthz":
			if r.Method == http.MethodGet || r.Method == http.MethodHead {
				health.ServeHTTP(w, r)
				return
			}
		}
		refusal := apierrors.NewServiceUnavailable("the front door is starting; /readyz?verbose says what it waits for")
		refusal.ErrStatus.Details = retryAfter(1)
		respond.Error(w, r, refusal)
	})
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
