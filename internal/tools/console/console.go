package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"

	"portico.dev/internal/httpengine/httpmsg"
)

const (
	// minInterval limits the load that a console causes.
	minInterval     = time.Second
	defaultInterval = 2 * time.Second
	defaultTimeout  = 10 * time.Second
	// maxConnections bounds the connections of browsers, which need only a few. Connections without a session are
	// closed first, the oldest one for a new one.
	maxConnections = 64
	stopTimeout    = 5 * time.Second
	// readHeaderTimeout bounds the time until a connection has sent a request.
	readHeaderTimeout = 5 * time.Second
	// refusalsPerSecond and refusalBurst limit the rate of refused requests in the audit list and in the log, because
	// any user of the machine can send requests.
	refusalsPerSecond = 1
	refusalBurst      = 20
)

// Config configures a Console.
type Config struct {
	// Client is the client configuration for the API server.
	Client *rest.Config
	// Context is the display name of the cluster: the context of the kubeconfig.
	Context string
	// Port is the port on 127.0.0.1. 0 selects a free port.
	Port int
	// Interval is the polling interval. Default 2 s; at least 1 s.
	Interval time.Duration
	// Timeout bounds each request to the API server. Default 10 s.
	Timeout time.Duration
	// Drills runs drills. If it is nil, drills are not available and NoDrills is the reason.
	Drills   *Drills
	NoDrills string
	// Log receives a line for each action of the page. It may be nil.
	Log io.Writer

	now           func() time.Time
	headerTimeout time.Duration // default readHeaderTimeout
}

// Console serves the page for one cluster.
type Console struct {
	cfg     Config
	cluster *cluster
	state   *state
	jobs    *jobs
	guard   *guard
	audit   *audit
	refused refusals
	streams chan struct{} // holds a token for each open stream

	listener net.Listener
	handler  http.Handler
	ctx      context.Context // context of background jobs; set by Run
}

// newConsole returns a console without the HTTP server.
func newConsole(cfg Config) (*Console, error) {
	cfg.Interval = cmp.Or(cfg.Interval, defaultInterval)
	if cfg.Interval < minInterval {
		return nil, fmt.Errorf("an interval of %s is too short: %s is the least", cfg.Interval, minInterval)
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
	if cfg.now == nil {
		cfg.now = time.Now
	}
	api, err := newCluster(cfg.Client, cfg.Timeout)
	if err != nil {
		return nil, err
	}
	c := &Console{cfg: cfg, cluster: api, state: newState(), streams: make(chan struct{}, maxStreams)}
	c.refused.limit = rate.NewLimiter(refusalsPerSecond, refusalBurst)
	c.jobs = &jobs{state: c.state, now: cfg.now, begun: map[jobTarget]*job{}}
	c.audit = &audit{state: c.state, now: cfg.now, log: cfg.Log}
	c.state.update(func() {
		o := &c.state.overview
		o.Context, o.Server = cfg.Context, api.base.Scheme+"://"+api.base.Host
		c.state.publishOverview()
		c.state.publish(sectionDrills, listDrills(cfg.Drills, cfg.NoDrills))
		c.state.publish(sectionTimeline, []moment{})
		c.state.publish(sectionJobs, []*job{})
		c.state.publish(sectionAudit, []deed{})
	})
	return c, nil
}

// New listens on the port. Run serves it. If Run is not called, Close releases the port.
func New(cfg Config) (*Console, error) {
	c, err := newConsole(cfg)
	if err != nil {
		return nil, err
	}
	// The listener is always on loopback, because access to the page grants the permissions of the kubeconfig.
	if c.listener, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", fmt.Sprint(cfg.Port))); err != nil {
		return nil, fmt.Errorf("listen for the browser: %w", err)
	}
	if c.guard, err = newGuard(c.listener.Addr().String(), c.cfg.now); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.handler = c.routes()
	return c, nil
}

// URL returns the address of the page, with the token, which works once.
func (c *Console) URL() string { return "http://" + c.guard.host + "/#token=" + c.guard.token }

// Close closes the listener of a console that was not run.
func (c *Console) Close() error { return c.listener.Close() }

// Run serves until ctx ends and returns when all its goroutines have ended.
func (c *Console) Run(ctx context.Context) error { return c.run(ctx, c.follow) }

// run is Run with another function that reads the sources.
func (c *Console) run(ctx context.Context, follow func(context.Context)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.ctx = ctx
	var wg sync.WaitGroup
	defer wg.Wait()
	defer c.jobs.wg.Wait()
	defer cancel()
	wg.Go(func() { follow(ctx) })
	server := &http.Server{
		Handler: c.handler, ReadHeaderTimeout: cmp.Or(c.cfg.headerTimeout, readHeaderTimeout), ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
	}
	failed := make(chan error, 1)
	wg.Go(func() { failed <- server.Serve(httpmsg.NewBoundedListener(c.listener, maxConnections)) })
	var err error
	select {
	case err = <-failed:
		err = fmt.Errorf("serve the page: %w", err)
	case <-ctx.Done():
	}
	cancel() // ends the streams
	ending, stop := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer stop()
	if server.Shutdown(ending) != nil {
		err = errors.Join(err, server.Close())
	}
	c.cluster.client.CloseIdleConnections()
	return err
}
