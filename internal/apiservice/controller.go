package apiservice

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorlisters "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"

	"portico.dev/internal/metrics"
	routingclient "portico.dev/internal/routes/client"
	"portico.dev/internal/routetable"
	"portico.dev/internal/run"
	"portico.dev/internal/transport"
)

// Informer is an informer with its lister, like the accessors of informer factories. The factories and client-go's typed
// clients import every kind of every group, and tools that use this package for its rules must not link these
// (internal/tools/toolclient).
type Informer[L any] interface {
	Informer() cache.SharedIndexInformer
	Lister() L
}

// Client writes APIServices and their status. Typed clients of APIServices implement it.
type Client interface {
	Create(context.Context, *apiregistrationv1.APIService, metav1.CreateOptions) (*apiregistrationv1.APIService, error)
	Update(context.Context, *apiregistrationv1.APIService, metav1.UpdateOptions) (*apiregistrationv1.APIService, error)
	UpdateStatus(context.Context, *apiregistrationv1.APIService, metav1.UpdateOptions) (*apiregistrationv1.APIService, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
}

// Config is the configuration of a Controller. Every field without a default is required.
type Config struct {
	// Client writes APIServices and their status.
	Client Client
	// The caller must start the informers after New, which requests them from their factories, and must stop them after Run
	// has returned.
	APIServices    Informer[aggregatorlisters.APIServiceLister]
	Services       Informer[corelisters.ServiceLister]
	EndpointSlices Informer[discoverylisters.EndpointSliceLister]
	// Endpoints, if set, are used for Services without selector and EndpointSlices, if no kube-controller-manager mirrors
	// them. The informer should apply TrimEndpoints. If nil, only EndpointSlices are used.
	Endpoints Informer[corelisters.EndpointsLister]
	// CRDs, if set, are the definitions of the group-versions that this server serves. If nil, no CRDs are served, and
	// APIServices that were kept for CRDs are deleted.
	CRDs Informer[apiextensionslisters.CustomResourceDefinitionLister]
	// APIRoutes, if set, distribute the requests for an APIService over several backends. May be nil.
	APIRoutes *APIRoutes
	// Transport provides the backends. The controller closes backends that no APIService refers to, so it must not share
	// the set.
	Transport *transport.Set
	// Local contains the group-versions that this server serves itself, without CRDs.
	Local []schema.GroupVersion
	// EndpointRouting sends requests to the endpoints of a Service. If false, requests go to its cluster IP, like
	// kube-apiserver's default. That requires kube-proxy or a replacement on this machine, which then chooses the endpoint
	// and handles dead ones. Headless Services are always routed to endpoints.
	EndpointRouting bool
	// Peers are the other replicas of this server. May be nil.
	Peers Peers
	// Hops reports whether requests can be forwarded to another replica. If nil, they cannot.
	Hops func(replica string) bool
	// Replica is this replica's name in conditions and Events.
	Replica string
	// Events writes Kubernetes Events about objects without a namespace. If nil, no Events are written.
	Events Events
	// DocumentProblem, if set, returns what is wrong with the OpenAPI document of an APIService's backend, or "". The text
	// changes only when the problem does. It is called often and must not block.
	DocumentProblem func(apiService string) string
	// BackendEvents reports requests that failed or were answered. The controller reports to it that a backend may serve
	// different documents: its response to a probe changed, or it is healthy again after a connection was lost or its
	// endpoints changed. If nil, no events are received or reported.
	BackendEvents *transport.Events
	// OwnsStatus, if set, reports whether this program writes the status of an APIService. Only one program of a cluster
	// may return true for an APIService. If nil, this program writes the status of all.
	OwnsStatus func(apiService string) bool
	// WithoutEtcd, if set, reports whether nothing can be written now. Registrations are postponed then, and Ready does not
	// wait for them.
	WithoutEtcd func() bool
	// Debts, if set, reports which backends must be cleaned up before they may be used. May be nil.
	Debts   Debts
	Metrics *metrics.Availability
	Logger  *zap.Logger
}

// firstProbeTime is how long Ready waits for the first probes, so that clients do not get 503 for healthy backends right
// after a restart. A hanging backend delays Ready by no more than that.
const firstProbeTime = time.Second

// Controller keeps the Table up to date.
type Controller struct {
	cfg      Config
	log      *zap.Logger
	lister   aggregatorlisters.APIServiceLister
	resolver *resolver
	local    *localAPIServices

	apiRoutes        routingclient.Lister
	routeStatus      apiRouteStatusWriter
	rollbacks        rollbackWriter
	registrar        *registrar
	replicas         *replicas
	events           *eventRecorder
	status           *statusWriter
	documentProblems messages
	debts            messages
	prober           *prober
	monitors         monitorSet
	transitions      transitions

	queue workqueue.TypedDelayingInterface[queueItem]
	ready chan struct{}

	// entries is used by the loop only.
	entries map[string]*entry
	synced  bool
	// parts contains the entry names of the backends of APIRoutes, by APIService. It is used by the loop only; routed is
	// their number.
	parts  map[string][]string
	routed atomic.Int64
	// users and kept, the backends in use, are used by the loop only.
	users users
	kept  map[*transport.Backend]bool

	table atomic.Pointer[routetable.Table]
	mu    sync.Mutex // guards changed
	// changed is closed and replaced at each new table.
	changed chan struct{}
}

// New makes a controller. It does no I/O and starts no goroutine.
func New(cfg Config) *Controller {
	var crds apiextensionslisters.CustomResourceDefinitionLister
	if cfg.CRDs != nil {
		cfg.CRDs.Informer()
		crds = cfg.CRDs.Lister()
	}
	// Calling Informer registers the informers with their factories. A factory that was started earlier would not start
	// them.
	cfg.APIServices.Informer()
	cfg.Services.Informer()
	cfg.EndpointSlices.Informer()
	var endpoints corelisters.EndpointsLister
	if cfg.Endpoints != nil {
		cfg.Endpoints.Informer()
		endpoints = cfg.Endpoints.Lister()
	}
	if cfg.BackendEvents == nil {
		cfg.BackendEvents = new(transport.Events)
	}
	c := &Controller{
		cfg:    cfg,
		log:    cfg.Logger.Named("apiservice"),
		lister: cfg.APIServices.Lister(),
		resolver: &resolver{
			services:        cfg.Services.Lister(),
			slices:          cfg.EndpointSlices.Lister(),
			endpoints:       endpoints,
			endpointRouting: cfg.EndpointRouting,
		},
		local:    newLocalAPIServices(cfg.Local, crds),
		prober:   newProber(),
		monitors: newMonitorSet(),
		ready:    make(chan struct{}),
		entries:  make(map[string]*entry),
		changed:  make(chan struct{}),
	}
	c.users = users{names: make(map[*transport.Backend][]string), touched: make(map[*transport.Backend]bool)}
	c.kept = make(map[*transport.Backend]bool)
	c.table.Store(&routetable.Table{})
	c.parts, c.routeStatus.c, c.rollbacks.c = make(map[string][]string), c, c
	if cfg.APIRoutes != nil {
		c.apiRoutes = routingclient.NewLister(cfg.APIRoutes.Informer)
	}
	c.registrar = newRegistrar(cfg.Client, c.lister, c.local, c.log)
	if cfg.WithoutEtcd != nil {
		c.registrar.withoutEtcd = cfg.WithoutEtcd
	}
	c.replicas = newReplicas(cfg.Peers, cfg.Replica, cfg.Hops, c.log)
	c.events = newEventRecorder(cfg.Events, cfg.Replica, c.log)
	c.status = &statusWriter{
		client: cfg.Client, lister: c.lister, table: c.Table, replicas: c.replicas, events: c.events, log: c.log,
		owns:           cfg.OwnsStatus,
		messageWritten: make(map[string]time.Time),
	}
	return c
}

// Table returns the current table.
func (c *Controller) Table() *routetable.Table { return c.table.Load() }

// Changed returns a channel that is closed at the next change of the table. Call it before reading the table, or a change
// between the two calls is missed.
func (c *Controller) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Ready is closed when the built-in group-versions have their APIServices, every APIService that was found at start is in
// the table, and backends had a moment to answer their first probe.
func (c *Controller) Ready() <-chan struct{} { return c.ready }

// backendFailed schedules a probe of a backend that was available.
func (c *Controller) backendFailed(b *transport.Backend) {
	if m, ok := c.monitors.lookup(b); ok && m.healthy() {
		m.probeAfterFault()
	}
}

// backendAnswered makes probes unnecessary while requests are answered.
func (c *Controller) backendAnswered(b *transport.Backend) {
	if m, ok := c.monitors.lookup(b); ok {
		m.recordAnswer()
	}
}

// probeSoonInterval is the minimum time between two probes that ProbeSoon triggers.
const probeSoonInterval = 2 * time.Second

// ProbeSoon requests a probe because an operation waits for the return of an APIService's backend. A backend that has been
// down for long is probed only every five seconds; while a namespace waits for it, every two seconds. It does not block.
func (c *Controller) ProbeSoon(apiService string) {
	for _, r := range c.Table().All() {
		if r.Name != apiService && r.Of != apiService || r.Backend == nil {
			continue
		}
		if m, ok := c.monitors.lookup(r.Backend); ok && time.Since(m.history(r.GroupVersion).last.at) > probeSoonInterval {
			m.probeSoon()
		}
	}
}

// Run maintains the table until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	c.queue = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[queueItem]{Name: "apiservice_routes", Clock: run.QueueClock})
	c.registrar.prepare()
	c.status.prepare()
	c.routeStatus.prepare()
	c.rollbacks.prepare()
	// Workers shut down their queue themselves. These calls are for a Run that ends before they start.
	defer c.status.queue.ShutDown()
	defer c.routeStatus.queue.ShutDown()
	defer c.rollbacks.queue.ShutDown()
	defer c.registrar.queue.ShutDown()
	defer c.queue.ShutDown()

	defer c.cfg.BackendEvents.Subscribe(&transport.Subscriber{Failed: c.backendFailed, Answered: c.backendAnswered})()
	stop, synced, err := c.subscribe(ctx)
	defer stop()
	if err != nil {
		return err
	}
	if !synced {
		return nil // ctx ended first
	}

	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()

	if err := c.routeAll(); err != nil {
		return err
	}
	failed := make(chan error, 2)
	for _, part := range []func(context.Context) error{c.registrar.run, c.events.run} {
		wg.Go(func() {
			if err := part(ctx); err != nil {
				failed <- err
			}
		})
	}
	for _, part := range []func(context.Context){c.status.run, c.routeStatus.run, c.rollbacks.run, c.awaitReady, c.exchangeVerdicts, c.watchDocuments, c.watchDebts} {
		wg.Go(func() { part(ctx) })
	}
	wg.Go(func() { c.monitors.timers.Run(ctx) })
	loop := make(chan struct{})
	wg.Go(func() {
		defer close(loop)
		c.loop(ctx)
	})
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	cancel()
	c.queue.ShutDown()
	<-loop
	c.monitors.dropAll()
	return err
}

// awaitReady waits for the conditions of Ready and closes the channel.
func (c *Controller) awaitReady(ctx context.Context) {
	if c.cfg.WithoutEtcd == nil || !c.cfg.WithoutEtcd() {
		select {
		case <-c.registrar.registered:
		case <-ctx.Done():
			return
		}
	}
	patience := time.NewTimer(firstProbeTime)
	defer patience.Stop()
	for {
		changed := c.Changed()
		if !hasUnchecked(c.Table()) {
			break
		}
		select {
		case <-changed:
			continue
		case <-patience.C:
		case <-ctx.Done():
			return
		}
		break
	}
	close(c.ready)
}

func hasUnchecked(t *routetable.Table) bool {
	return slices.ContainsFunc(t.Routes(), func(r *routetable.Route) bool {
		return r.Condition.Reason == routetable.ReasonNotChecked
	})
}
