package aggregator

import (
	"context"
	"fmt"
	"os"
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
	parts atomic.Pointer[parts] // from Ready to the end of Run
	wake  pki.Wake              // has files looked at that are followed
}

// New checks the settings. It touches neither disk nor network.
func New(c Config, log *zap.Logger) (*Aggregator, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Aggregator{cfg: c, log: log, ready: make(chan struct{})}, nil
}

// Ready is closed when requests are served and the administrator's kubeconfig is written.
func (a *Aggregator) Ready() <-chan struct{} { return a.ready }

// Run starts the front door, serves until ctx ends, drains, and returns when everything has stopped.
func (a *Aggregator) Run(ctx context.Context) error {
	if a.cfg.Cluster.Reset {
		return a.resetCluster(ctx)
	}
	p, err := prepare(ctx, &a.cfg, a.log)
	if err != nil {
		return err
	}
	if p.listener != nil {
		defer p.listener.Close() // the server closes it, unless the start failed before
	}
	h, err := wire(a.cfg, p, a.log)
	if err != nil {
		return err
	}
	a.url, a.keys = p.url, p.keys
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

// watchKeys rotates our own certificates and reloads files that change on disk.
func (h *parts) watchKeys(ctx context.Context) error {
	log := h.log.Named("keys")
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return h.keys.Run(ctx, h.serving, log) })
	files := []func(context.Context, *zap.Logger) error{
		h.servingCert.Run, h.proxyClientCert.Run, h.clientCA.Run, h.frontProxy.Run, h.rootCA.Run,
	}
	if h.kubeletClientCert != nil {
		files = append(files, h.kubeletClientCert.Run)
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
			if err := a.writeAdminKubeconfig(); err != nil {
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

// writeAdminKubeconfig writes the file that an administrator's kubectl uses. It is written once the front door answers,
// so that the file can be used as soon as it exists.
func (a *Aggregator) writeAdminKubeconfig() error {
	certPEM, err := os.ReadFile(a.keys.Path("admin.crt"))
	if err != nil {
		return err
	}
	keyPEM, err := os.ReadFile(a.keys.Path("admin.key"))
	if err != nil {
		return err
	}
	data, err := kubeconfig(a.url, a.keys.Cluster.PEM(), pki.AdminName, certPEM, keyPEM)
	if err != nil {
		return err
	}
	return pki.WriteFile(a.cfg.AdminKubeconfig(), data, 0o600)
}
