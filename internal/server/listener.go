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

	"portico.dev/internal/httpengine"
	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/httpengine/httpmsg"
	"portico.dev/internal/logging"
	"portico.dev/internal/metrics"
	"portico.dev/internal/overload"
	"portico.dev/internal/proxy"
	"portico.dev/internal/respond"
)

// Config configures a Server.
type Config struct {
	// Listener is already bound, so that a port in use is detected before any other component starts.
	Listener net.Listener
	// Hold is how long connections may wait to be accepted before Run begins. It is for a listener that exists before
	// and after this process: clients then experience a restart as a delay. Default 0.
	Hold time.Duration
	TLS  *tls.Config
	// Engine is the HTTP implementation. Default: Portico's own.
	Engine httpengine.Name
	// MaxConcurrentStreams limits the concurrent requests on an HTTP/2 connection. Default 100.
	MaxConcurrentStreams int
	Handler              http.Handler
	Health               *Health
	Drainer              *Drainer
	// Proxy has the upgraded connections, which the HTTP servers no longer track.
	Proxy  *proxy.Proxy
	Logger *zap.Logger
	// Overload closes connections under memory pressure. May be nil.
	Overload *overload.Monitor
	// OverloadMetrics counts the closed connections. Memory is the limit; the zero value means no limit.
	OverloadMetrics *metrics.Overload
	Memory          overload.Limit
	// LargeHeaders grants memory for headers beyond 64 KiB or httpmsg.MaxFields. If nil, larger headers are refused.
	LargeHeaders *HeaderMemory
	// ShutdownDelay is how long the server serves requests after /readyz has failed, so that load balancers notice.
	// Default 0.
	ShutdownDelay time.Duration
	// ShutdownGrace is how long requests in flight may take to finish. Default 10 s.
	ShutdownGrace time.Duration
}

// Limits of a connection. Attack rows D1 to D3.
const (
	maxHeaderBytes       = httpmsg.MaxHeader
	maxConcurrentStreams = 100 // as in kube-apiserver; the default of Config.MaxConcurrentStreams
)

// limits are the timeouts of a connection. Attack row D5.
type limits struct {
	handshake  time.Duration // of the TLS handshake
	readHeader time.Duration // for the head of a request
	idle       time.Duration // between requests
	stall      time.Duration // while the client does not read the response
}

var defaultLimits = limits{handshake: 10 * time.Second, readHeader: 10 * time.Second, idle: 90 * time.Second, stall: 30 * time.Second}

// Server accepts connections and passes their requests to the chain.
type Server struct {
	c        Config
	limits   limits
	ready    chan struct{}
	open     atomic.Bool // requests are served by the chain
	accepts  chan struct{}
	acceptor *acceptor
	clients  engine.Server
}

// New returns a server.
func New(c Config) *Server {
	if c.ShutdownGrace <= 0 {
		c.ShutdownGrace = 10 * time.Second
	}
	return &Server{c: c, limits: defaultLimits, ready: make(chan struct{}), accepts: make(chan struct{})}
}

// Ready returns a channel that is closed when requests are served.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Accepts returns a channel that is closed when connections are accepted or held.
func (s *Server) Accepts() <-chan struct{} { return s.accepts }

// Accept accepts connections until ctx is done. Until Run begins, startingHandler serves requests, so that clients
// and load balancers learn that this server is starting and why it is not ready. Accept must be called before Run,
// and its ctx must end after Run's ctx.
func (s *Server) Accept(ctx context.Context) error {
	logf := logging.Limited(s.c.Logger).Sugar().Debugf // client errors are of interest only at debug level
	config := engine.ServerConfig{
		Handler: s.handler(), Context: clientContext, MaxConcurrentStreams: cmp.Or(s.c.MaxConcurrentStreams, maxConcurrentStreams), MaxHeaderBytes: maxHeaderBytes,
		HeaderTimeout: s.limits.readHeader, IdleTimeout: s.limits.idle,
		PingAfter: 30 * time.Second, PingTimeout: 15 * time.Second,
		StallTimeout: s.limits.stall, // for HTTP/2 windows; stallConn limits writes that wait for the kernel
		Refuse:       s.refuse(),
		Logf:         logf,
	}
	if s.c.LargeHeaders != nil {
		config.LargeHeaders = s.c.LargeHeaders
	}
	s.clients = httpengine.NewServer(s.c.Engine, config)
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
	s.clients.Close() // everything that Run has not ended
	ending, cancel := context.WithTimeout(context.Background(), handlerGrace)
	defer cancel()
	if s.acceptor.Wait(ending) != nil {
		s.c.Logger.Warn("handlers of terminated requests are still running", zap.Duration("for", handlerGrace))
	}
	return err
}

// hold returns when Run has begun, ctx is done, or connections have waited for Config.Hold.
func (s *Server) hold(ctx context.Context) {
	if s.c.Hold <= 0 {
		return
	}
	enough := time.NewTimer(s.c.Hold)
	defer enough.Stop()
	select {
	case <-s.ready:
	case <-enough.C:
		s.c.Logger.Warn("startup is not complete; accepting connections and responding 503 to requests", zap.Duration("after", s.c.Hold))
	case <-ctx.Done():
	}
}

// Run serves requests until ctx is done, and then drains. First, /readyz fails. In the second half of the shutdown
// delay, responses make clients use other connections. Then the listener closes, HTTP/2 clients receive a GOAWAY,
// watches end cleanly, and accepted requests finish. Upgraded streams get the rest of the grace period.
func (s *Server) Run(ctx context.Context) error {
	<-s.accepts
	s.open.Store(true)
	close(s.ready)
	<-ctx.Done()
	s.shutdown(s.acceptor, s.clients)
	ending, cancel := context.WithTimeout(context.Background(), handlerGrace)
	defer cancel()
	if s.acceptor.Wait(ending) != nil {
		s.c.Logger.Warn("handlers of terminated requests are still running", zap.Duration("for", handlerGrace))
	}
	return nil
}

// handler returns a handler that calls startingHandler until Run has begun, and the chain afterwards.
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

// startingHandler serves health requests, so that probes see that the process is alive and why it is not ready. It
// serves every client, because clients cannot be authenticated yet, and therefore does not serve single checks. All
// other requests are refused with a hint to retry.
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

// handlerGrace is how long handlers may take to notice that their connection is closed.
const handlerGrace = 5 * time.Second

func (s *Server) shutdown(a *acceptor, clients engine.Server) {
	s.c.Health.Stopping()
	// In the first half, load balancers notice; in the second half, connections move.
	time.Sleep(s.c.ShutdownDelay / 2)
	s.c.Drainer.Leave()
	time.Sleep(s.c.ShutdownDelay - s.c.ShutdownDelay/2)
	ctx, cancel := context.WithTimeout(context.Background(), s.c.ShutdownGrace)
	defer cancel()
	a.Close()
	s.c.Drainer.EndLongRunning()
	// Shutdown waits for every request that a connection has accepted, however late its handler begins. The drainer
	// starts to refuse requests only after Shutdown, because it would otherwise refuse accepted ones.
	err := errors.Join(clients.Shutdown(ctx), s.c.Drainer.Drain(ctx))
	cut := s.c.Proxy.Drain(ctx)
	if s.c.Drainer.busy() || cut > 0 { // otherwise only idle connections are left
		s.c.Logger.Warn("terminating requests at the end of the shutdown grace period",
			zap.Duration("grace", s.c.ShutdownGrace), zap.Int("upgraded", cut), zap.Error(err))
	}
	clients.Close() // the remaining requests have used up their grace
}

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
