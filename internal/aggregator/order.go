package aggregator

import (
	"context"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/run"
)

// members returns the parts in the order in which they start.
func (h *parts) members() *run.Group {
	g := &run.Group{}
	add := func(name string, ready <-chan struct{}, f func(context.Context) error) {
		g.Add(run.Member{Name: name, Ready: ready, Run: f})
	}
	addWithEtcd := func(name string, ready <-chan struct{}, f func(context.Context) error) {
		ready, f = h.onceEtcdIsBack(ready, f)
		add(name, ready, f)
	}
	if h.AccessLog != nil {
		add("access log", nil, h.AccessLog.Run) // before the first request, and until after the last one
	}
	if h.server != nil {
		add("port", h.server.Accepts(), h.server.Accept)
	}
	add("keys", nil, h.watchKeys)
	if h.Egress != nil {
		add("tunnels", nil, h.RunEgress)
	}
	add("authentication", nil, h.watchAuthentication)
	add("authorization", nil, h.authz.Run)
	add("store", h.store.Ready(), h.store.Run)
	addWithEtcd("replicas", h.replicas.Ready(), h.replicas.Run)
	add("encryption", h.encryption.Ready(), h.encryption.Run)
	addWithEtcd("shared keys", h.sharedKeys.Ready(), h.sharedKeys.Run)
	add("webhooks", nil, h.closeWebhooks)
	add("kubelets", nil, h.closeKubelets)
	add("local groups", h.core.Ready(), h.core.Run)
	bootstrapped, bootstrap := h.bootstrap()
	addWithEtcd("bootstrap", bootstrapped, bootstrap)
	synced, follow := h.runInformers()
	add("informers", synced, follow)
	add("rbac", h.rbac.Ready(), func(ctx context.Context) error { return h.rbac.Run(ctx, h.rbacInformers()) })
	if h.authz.AuthorizesNodes() {
		addWithEtcd("node authorizer", h.nodes.Ready(), h.runNodeAuthorizer)
	}
	if h.fairness != nil {
		add("fairness", h.fairness.Ready(), h.fairness.Run)
	}
	add("transport", nil, h.CloseTransport)
	if h.fleet != nil {
		add("clusters", h.fleet.Ready(), h.fleet.Run)
	}
	add("debts", h.debts.Ready(), h.debts.Run) // before any backend becomes available
	var handOver []run.Member
	if h.peers != nil {
		handOver = []run.Member{{Name: "peers", Run: h.peers.Run}}
	}
	for _, m := range h.Members(handOver...) {
		g.Add(m)
	}
	addWithEtcd("debt cleanup", nil, h.debtCleaner.Run)
	addWithEtcd("controllers", h.controllers.Ready(), h.controllers.Run)
	if h.collector != nil {
		addWithEtcd("garbage collector", nil, h.collector.Run)
	}
	if h.joins != nil && h.cfg.Cluster.Init {
		g.Add(h.firstToken())
	}
	if h.sharesEtcd() {
		add("etcd loss", nil, h.etcdLoss.run)
		add("state snapshot", nil, h.runStateSnapshot)
	}
	if h.schedule != nil {
		addWithEtcd("backups", nil, h.schedule.Run)
	}
	if h.tracing != nil {
		add("tracing", nil, h.tracing.Run) // before the listener, so that the last spans are sent after the last request
	}
	if h.audit != nil {
		add("audit", nil, h.audit.Run) // before the listener, for the same reason
	}
	if h.Overload != nil {
		add("overload", nil, h.Overload.Run)
	}
	for _, m := range h.cfg.Embedded.Members {
		g.Add(m)
	}
	if h.server != nil {
		add("listener", h.server.Ready(), h.server.Run)
	} else {
		add("handler", nil, h.drain)
	}
	return g
}

// drain ends the requests of a front door without a listener, as the server does.
func (h *parts) drain(ctx context.Context) error {
	<-ctx.Done()
	h.health.Stopping()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.cfg.ShutdownGrace)
	defer cancel()
	if err := h.Drainer.Drain(grace); err != nil {
		h.log.Warn("terminating requests at the end of the shutdown grace period", zap.Duration("grace", h.cfg.ShutdownGrace))
	}
	h.Proxy.Drain(grace)
	return nil
}

const bootstrapTimeout = 30 * time.Second

// bootstrap writes the namespaces, roles and bindings that every cluster starts with.
func (h *parts) bootstrap() (<-chan struct{}, func(context.Context) error) {
	done := make(chan struct{})
	return done, func(ctx context.Context) error {
		for {
			bounded, cancel := context.WithTimeout(ctx, bootstrapTimeout)
			err := h.writeBootstrapObjects(bounded)
			cancel()
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return nil // whatever the interrupted client reports; the next start creates the missing objects
			}
			if _, later := h.store.StartedFrom(); !later {
				return err
			}
			// Clients are already being served.
			h.log.Warn("failed to create the bootstrap objects; retrying", zap.Error(err))
			run.Pause(ctx, time.Second)
		}
		close(done)
		<-ctx.Done()
		return nil
	}
}

// runInformers runs the informers.
func (h *parts) runInformers() (<-chan struct{}, func(context.Context) error) {
	synced := make(chan struct{})
	return synced, func(ctx context.Context) error {
		h.informers.Start(ctx.Done())
		h.services.Start(ctx.Done())
		h.awaitInformers(ctx)
		close(synced)
		<-ctx.Done()
		h.informers.Shutdown()
		h.services.Shutdown()
		return nil
	}
}
