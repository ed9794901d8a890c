package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/tools/cache"

	"portico.dev/internal/logging"
	"portico.dev/internal/run"
)

// startTimeout is how long a start waits for the API server. After that the process ends, so that its supervisor
// restarts it.
const startTimeout = 10 * time.Minute

// Run serves until ctx ends. It can start while the API server is unreachable, and serves requests once it has
// reached it.
func (g *Gateway) Run(ctx context.Context) error {
	group := &run.Group{}
	add := func(name string, ready <-chan struct{}, f func(context.Context) error) {
		group.Add(run.Member{Name: name, Ready: ready, Run: f})
	}
	if g.AccessLog != nil {
		add("access log", nil, g.AccessLog.Run) // before the first request, and until after the last one
	}
	add("port", g.server.Accepts(), g.server.Accept)
	if g.metricsListener != nil {
		add("metrics", nil, g.serveMetrics)
	}
	add("authentication", g.trust.Ready(), g.trust.Run)
	add("keys", g.keys.ready, g.keys.Run)
	add("election", nil, g.election.Run)
	add("peers", nil, g.peers.Run)
	synced, follow := g.runInformers()
	add("informers", synced, follow)
	if g.Egress != nil {
		add("tunnels", nil, g.RunEgress)
	}
	add("transport", nil, g.CloseTransport)
	for _, m := range g.Members() {
		group.Add(m)
	}
	add("upkeep", nil, g.runUpkeep)
	if g.Overload != nil {
		add("overload", nil, g.Overload.Run)
	}
	add("listener", g.server.Ready(), g.server.Run)
	return group.Run(ctx)
}

func (g *Gateway) runInformers() (<-chan struct{}, func(context.Context) error) {
	synced := make(chan struct{})
	return synced, func(ctx context.Context) error {
		g.registered.Apiregistration().V1().APIServices().Informer()
		g.informers.Namespaces().Informer()
		viewed := make(chan struct{})
		go func() {
			defer close(viewed)
			g.view.informer.RunWithContext(ctx)
		}()
		g.informers.Start(ctx.Done())
		g.registered.Start(ctx.Done())
		g.informers.WaitForCacheSync(ctx.Done())
		g.registered.WaitForCacheSync(ctx.Done())
		cache.WaitForCacheSync(ctx.Done(), g.view.informer.HasSynced)
		if ctx.Err() == nil {
			close(synced)
		}
		<-ctx.Done()
		g.informers.Shutdown()
		g.registered.Shutdown()
		<-viewed
		return nil
	}
}

// runUpkeep triggers a round of upkeep when an APIService, a verdict or the leader changes.
func (g *Gateway) runUpkeep(ctx context.Context) error {
	informer := g.registered.Apiregistration().V1().APIServices().Informer()
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { g.upkeep.Wake() }, UpdateFunc: func(any, any) { g.upkeep.Wake() }, DeleteFunc: func(any) { g.upkeep.Wake() },
	})
	if err != nil {
		return fmt.Errorf("listen for events: %w", err)
	}
	defer func() { _ = informer.RemoveEventHandler(registration) }()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	defer func() { <-ended }()
	defer cancel()
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			table, leader := g.APIServices.Changed(), g.election.Changed()
			g.upkeep.Wake()
			select {
			case <-table:
			case <-leader:
			case <-ctx.Done():
			}
		}
	}()
	return g.upkeep.Run(ctx)
}

// serveMetrics serves metrics over HTTP until ctx ends.
func (g *Gateway) serveMetrics(ctx context.Context) error {
	server := &http.Server{Handler: g.metricsHandler(), ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: zap.NewStdLog(logging.Limited(g.log.Named("metrics")))}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(g.metricsListener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve metrics: %w", err)
	case <-ctx.Done():
	}
	err := server.Close()
	if e := <-failed; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}
