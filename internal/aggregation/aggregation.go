package aggregation

import (
	"context"
	"net/http"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/discovery"
	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/discovery/watchlist"
	"portico.dev/internal/dispatch"
	"portico.dev/internal/metrics"
	"portico.dev/internal/openapi"
	"portico.dev/internal/proxy"
	"portico.dev/internal/routes/mirror"
	"portico.dev/internal/routes/sharedreads"
	"portico.dev/internal/routes/sharedwatch"
	"portico.dev/internal/routetable"
	"portico.dev/internal/run"
	"portico.dev/internal/server"
	"portico.dev/internal/transport"
)

// Config contains the settings that differ between the programs. New completes the configurations of the parts with
// the fields that refer to other parts, with the settings in Serving, and with loggers and metrics.
type Config struct {
	*Base

	Transport   transport.Options
	APIServices apiservice.Config
	Discovery   discovery.Config
	OpenAPI     openapi.Config
	Proxy       proxy.Config
	Handlers    dispatch.Config

	// View is the part of the routing table in the merged documents.
	View remote.View
	// Resources returns the known resources of a group-version, which are probed for watches with initial events.
	// snapshot may be nil.
	Resources func(snapshot *discovery.Snapshot, gv schema.GroupVersion) []apidiscoveryv2.APIResourceDiscovery
	// WarnOfStaleDocuments adds the warning of the discovery document of a group-version to its OpenAPI document.
	WarnOfStaleDocuments bool
}

// Aggregation contains the common parts, built but not started.
type Aggregation struct {
	config Config

	// BackendEvents connects Transport and the handlers, which publish events about backends, with their readers.
	BackendEvents transport.Events
	Transport     *transport.Set
	APIServices   *apiservice.Controller
	Discovery     *discovery.Merger
	WatchLists    *watchlist.Prober
	OpenAPI       *openapi.Publisher

	Proxy         *proxy.Proxy
	Mirror        *mirror.Mirror
	SharedReads   *sharedreads.Cache
	SharedWatches *sharedwatch.Watches
	Groups        *dispatch.Handlers
}

// New builds the parts.
func New(c Config) (*Aggregation, error) {
	a := &Aggregation{config: c}
	t := c.Transport
	t.Tunnel, t.Engine, t.Zone = c.Egress.Cluster(), c.serving.BackendEngine, c.serving.Zone
	t.OnFailure, t.OnSuccess = a.BackendEvents.Failed, a.BackendEvents.Answered
	t.MaxReplayTotal = c.Memory.Share(transport.MaxReplayTotal, 16)
	t.Metrics, t.Logger = c.Metrics.Backends, c.log.Named("transport")
	a.Transport = transport.New(t)
	c.Metrics.Buffered.Add(metrics.BufferedRetries, a.Transport.KeptBodies)

	s := c.APIServices
	s.Transport, s.BackendEvents, s.EndpointRouting = a.Transport, &a.BackendEvents, c.serving.EnableAggregatorRouting
	s.DocumentProblem = func(apiService string) string { return a.OpenAPI.Problem(apiService) }
	s.Metrics, s.Logger = c.Metrics.Availability, c.log.Named("apiservice")
	a.APIServices = apiservice.New(s)

	if err := a.buildDocuments(); err != nil {
		return nil, err
	}
	a.buildHandlers()
	return a, nil
}

// buildDocuments builds the merged documents.
func (a *Aggregation) buildDocuments() (err error) {
	c := &a.config
	routes := c.View.Tables(a.APIServices.Table)
	d := c.Discovery
	d.Routes, d.Changed, d.BackendEvents = routes, a.APIServices.Changed, &a.BackendEvents
	d.Metrics, d.Logger = c.Metrics.Discovery, c.log.Named("discovery")
	if a.Discovery, err = discovery.New(d); err != nil {
		return err
	}
	a.WatchLists = watchlist.NewProber(watchlist.Config{
		Routes: a.watchListRoutes, RoutesChanged: a.APIServices.Changed, DocumentsChanged: a.Discovery.Changed,
		BackendEvents: &a.BackendEvents, Metrics: c.Metrics.Discovery, Logger: c.log.Named("watchlist"),
	})
	o := c.OpenAPI
	o.Routes, o.Changed, o.BackendEvents = routes, a.APIServices.Changed, &a.BackendEvents
	o.Metrics, o.Logger = c.Metrics.OpenAPI, c.log.Named("openapi")
	if c.WarnOfStaleDocuments {
		o.Warning = a.staleWarning
	}
	a.OpenAPI, err = openapi.New(o)
	return err
}

// staleWarning returns the warning of discovery about the group-version at a path.
func (a *Aggregation) staleWarning(path string) *remote.Warning {
	if s := a.Discovery.Current(); s != nil {
		return s.Warning(path)
	}
	return nil
}

// watchListRoutes returns the remote routes that are probed for watches with initial events.
func (a *Aggregation) watchListRoutes() []watchlist.Route {
	snapshot := a.Discovery.Current()
	return watchlist.RoutesOf(a.APIServices.Table(), a.config.View, func(gv schema.GroupVersion) []apidiscoveryv2.APIResourceDiscovery {
		return a.config.Resources(snapshot, gv)
	})
}

// buildHandlers builds the proxy and the handlers of group-versions.
func (a *Aggregation) buildHandlers() {
	c := &a.config
	p := c.Proxy
	p.Lists, p.Requests, p.Logger = c.Bodies.ForLists(), c.Metrics.Requests, c.log.Named("proxy")
	a.Proxy = proxy.New(p)
	a.Mirror = mirror.New(mirror.Config{Metrics: c.Metrics.Mirror, Logger: c.log.Named("mirror")})
	a.SharedWatches = sharedwatch.New(sharedwatch.Config{
		MaxBytes: c.Memory.Share(sharedwatch.MaxBytes, 12), Metrics: c.Metrics.SharedWatches, Logger: c.log.Named("sharedwatch"),
	})
	h := c.Handlers
	h.Routes, h.Proxy, h.Discovery, h.InitialEvents = a.APIServices.Table, a.Proxy, a.Discovery, a.WatchLists
	h.Unknown = func(route *routetable.Route) { a.BackendEvents.DocumentsMayDiffer(route.Backend) }
	a.SharedReads = sharedreads.New(sharedreads.Config{MaxBytes: c.Memory.Share(sharedreads.MaxBytes, 16), Metrics: c.Metrics.SharedReads})
	h.SharedReads, h.SharedWatches, h.Mirror, h.RollBack = a.SharedReads, a.SharedWatches, a.Mirror, a.APIServices.RollBack
	a.Groups = dispatch.New(h)
}

// Router returns the router for the common parts and a handler of all paths outside the API.
func (a *Aggregation) Router(static http.Handler) *server.Router {
	return &server.Router{Groups: a.Groups, Discovery: a.Discovery, OpenAPI: a.OpenAPI, Static: static}
}

// CloseTransport waits until ctx is done, and closes the connections to backends. All components that use them stop
// earlier.
func (a *Aggregation) CloseTransport(ctx context.Context) error {
	<-ctx.Done()
	a.Transport.Close()
	return nil
}

// Members returns the parts in the order in which they start. further starts after the routing table and before the
// parts that use it.
func (a *Aggregation) Members(further ...run.Member) []run.Member {
	members := append([]run.Member{{Name: "apiservices", Ready: a.APIServices.Ready(), Run: a.APIServices.Run}}, further...)
	return append(members,
		run.Member{Name: "mirror", Run: a.Mirror.Run},
		run.Member{Name: "shared watches", Run: a.SharedWatches.Run},
		run.Member{Name: "moved watches", Run: func(ctx context.Context) error { return a.Groups.Run(ctx, a.APIServices.Changed) }},
		run.Member{Name: "discovery", Ready: a.Discovery.Ready(), Run: a.Discovery.Run},
		run.Member{Name: "watch list probes", Run: a.WatchLists.Run},
		run.Member{Name: "openapi", Ready: a.OpenAPI.Ready(), Run: a.OpenAPI.Run},
	)
}
