package aggregator

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"portico.dev/internal/pki"
	"portico.dev/internal/run"
	"portico.dev/internal/version"
)

// Aggregator is a front API server.
type Aggregator struct {
	cfg   Config
	log   *zap.Logger
	ready chan struct{}
	url   string
	keys  *pki.Directory
	parts atomic.Pointer[parts] // set from Ready to the end of Run
	wake  pki.Wake              // checks the files that are followed

	writing sync.Mutex // held while the administrator's kubeconfig is written
}

// New checks the settings. It does not access disk or network.
func New(c Config, log *zap.Logger) (*Aggregator, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Aggregator{cfg: c, log: log, ready: make(chan struct{})}, nil
}

// Ready returns a channel that is closed when requests are served, and the administrator's kubeconfig is written if
// its certificate is accepted.
func (a *Aggregator) Ready() <-chan struct{} { return a.ready }

// Run starts the front door, serves until ctx ends, drains, and returns when all parts have stopped.
func (a *Aggregator) Run(ctx context.Context) error {
	if a.cfg.Cluster.Reset {
		return a.resetCluster(ctx)
	}
	p, err := prepare(ctx, &a.cfg, a.log)
	if err != nil {
		return err
	}
	if p.listener != nil {
		defer p.listener.Close() // the server closes it, unless the start failed earlier
	}
	h, err := wire(a.cfg, p, a.log)
	if err != nil {
		return err
	}
	a.url, a.keys = p.url, p.keys
	h.warnOfRefusedCredentials()
	h.authoritiesReplaced = func() { a.refreshAdminKubeconfig(h) }
	defer a.parts.Store(nil)
	if p.listener != nil {
		a.log.Info("the front door is starting", zap.String("url", a.url))
	}
	members := h.members()
	members.Add(h.announce(a))
	if !a.cfg.Embedded.NoServiceManager {
		members.Add(run.Member{Name: "service manager", Run: func(ctx context.Context) error { return run.NotifyServiceManager(ctx, a.log) }})
	}
	return members.Run(a.wake.In(ctx))
}

// watchKeys rotates Portico's own certificates, and reloads files that change on disk.
func (h *parts) watchKeys(ctx context.Context) error {
	log := h.log.Named("keys")
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return h.keys.Run(ctx, h.serving, h.authoritiesReplaced, log) })
	files := []func(context.Context, *zap.Logger) error{
		h.servingCert.Run, h.proxyClientCert.Run, h.clientCA.Run, h.frontProxy.Run, h.rootCA.Run,
	}
	if h.kubeletClientCert != nil {
		files = append(files, h.kubeletClientCert.Run)
	}
	for _, pair := range h.signingKeys {
		files = append(files, pair.Run)
	}
	if h.kubeletCA != nil {
		files = append(files, h.kubeletCA.Run)
	}
	for _, follow := range files {
		g.Go(func() error { return follow(ctx, log) })
	}
	return g.Wait()
}

// announce writes the kubeconfig and closes Ready when all parts have started.
func (h *parts) announce(a *Aggregator) run.Member {
	return run.Member{Name: "announcement", Ready: a.ready, Run: func(ctx context.Context) error {
		if !a.cfg.Embedded.NoListener {
			if err := a.writeAdminKubeconfig(h); err != nil {
				return fmt.Errorf("write the administrator's kubeconfig: %w", err)
			}
		}
		a.parts.Store(h)
		a.log.Info("the front door is open", zap.String("url", a.url), zap.String("version", version.Get().GitVersion),
			zap.Stringer("http engine", &a.cfg.HTTPEngine), zap.Stringer("backend engine", &a.cfg.BackendEngine))
		close(a.ready)
		<-ctx.Done()
		return nil
	}}
}
