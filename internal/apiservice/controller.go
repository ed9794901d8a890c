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
	"portico.dev/internal/routetable"
	routingclient "portico.dev/internal/routing/client"
	"portico.dev/internal/transport"
)

// Informer is an informer with its lister, as informer factories have them. The factories themselves, and client-go's typed clients, import
// every kind of every group, which tools that use this package for its rules must not link (internal/toolclient).
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

// Config is what a Controller needs. Every field without a default is required.
type Config struct {
	// Client writes APIServices and their status.
	Client Client
	// The informers must be started by the caller after New, which asks their factories for them, and must stop after
	// Run has returned.
	APIServices    Informer[aggregatorlisters.APIServiceLister]
	Services       Informer[corelisters.ServiceLister]
	EndpointSlices Informer[discoverylisters.EndpointSliceLister]
	// Endpoints, if set, are used for Services without selector and EndpointSlices, where no kube-controller-manager mirrors
	// them. The informer should apply TrimEndpoints. Default nil: EndpointSlices only.
	Endpoints Informer[corelisters.EndpointsLister]
	// CRDs, if set, are the definitions whose group-versions this server serves. Default nil: none, and APIServices that
	// were kept for CRDs are deleted.
	CRDs Informer[apiextensionslisters.CustomResourceDefinitionLister]
	// APIRoutes, if set, distribute the requests for an APIService over several backends. Default nil: there are none.
	APIRoutes *APIRoutes
	// Transport is where backends come from. The controller closes what no APIService refers to, so the set must be its
	// own.
	Transport *transport.Set
	// Local is the group-versions that this server serves itself, CRDs aside.
	Local []schema.GroupVersion
	// EndpointRouting sends requests to the endpoints of a Service. When false they go to its cluster IP, as
	// kube-apiserver does by default; that needs kube-proxy or the like on this machine, and leaves the choice of
	// endpoint, and what to do when one is dead, to it. Headless Services are routed to endpoints either way.
	EndpointRouting bool
	// Peers are the other replicas of this server. Default nil: there are none.
	Peers Peers
	// Hops reports whether requests can be handed to another replica. Default nil: to none.
	Hops func(replica string) bool
	// Replica is this replica's name in conditions and Events.
	Replica string
	// Events is where Kubernetes Events about objects without a namespace are written. Default nil: none are.
	Events Events
	// DocumentProblem, if set, says what is wrong with the OpenAPI document of an APIService's backend; empty when nothing
	// is. The text changes only when the problem does. It is called often and must not block.
	DocumentProblem func(apiService string) string
	// BackendEvents tells of requests that failed or were answered. The controller reports there that a backend may serve
	// other documents than before: its response to a probe changed, or it is healthy again after a connection was lost or its
	// endpoints changed. Default nil: nobody tells and nobody listens.
	BackendEvents *transport.Events
	// OwnsStatus, if set, reports whether this program writes the status of an APIService. Only one program of a cluster may return
	// true for an APIService. Default nil: this program writes the status of all.
	OwnsStatus func(apiService string) bool
	// WithoutEtcd, if set, reports whether nothing can be written now: registrations are put off then, and Ready does not wait for them.
	WithoutEtcd func() bool
	// Debts, if set, tells which backends must be cleaned up before they may be used. Default nil: none.
	Debts   Debts
	Metrics *metrics.Availability
	Logger  *zap.Logger
}

// firstProbeTime is how long Ready waits for the first probes, so that clients do not get 503 for healthy backends right
// after a restart. A backend that hangs delays Ready by no more than that.
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

	// entries belongs to the loop.
	entries map[string]*entry
	synced  bool
	// parts are the names of the entries of backends of APIRoutes, by APIService. They belong to the loop too; routed is their number.
	parts  map[string][]string
	routed atomic.Int64
	// users and kept, the backends in use, belong to the loop too.
	users users
	kept  map[*transport.Backend]bool

	table atomic.Pointer[routetable.Table]
	mu    sync.Mutex // for changed
	// changed is closed and replaced at each new table.
	changed chan struct{}
}

// New makes a controller. It does no I/O and starts nothing.
func New(cfg Config) *Controller {
	var crds apiextensionslisters.CustomResourceDefinitionLister
	if cfg.CRDs != nil {
		cfg.CRDs.Informer()
		crds = cfg.CRDs.Lister()
	}
	// Asking for the informers makes their factories know them; a factory that is started before starts without them.
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

// Changed returns a channel that is closed at the next change of the table. Take it before reading the table, or the
// change between the two is missed.
func (c *Controller) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Ready is closed when the built-in group-versions have their APIServices, every APIService that was found at start is
// in the table, and backends had a moment to answer their first probe.
func (c *Controller) Ready() <-chan struct{} { return c.ready }

// backendFailed probes a backend soon that was available.
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

// probeSoonInterval is the least time between two probes that ProbeSoon causes.
const probeSoonInterval = 2 * time.Second

// ProbeSoon tells that something waits for an APIService's backend to return. A backend that has been down for long is
// probed six times a minute only; while a namespace waits for it, every two seconds. It does not block.
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

// Run keeps the table until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	c.queue = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[queueItem]{Name: "apiservice_routes"})
	c.registrar.prepare()
	c.status.prepare()
	c.routeStatus.prepare()
	c.rollbacks.prepare()
	// Workers shut their queue down themselves; this is for a Run that ends before they start.
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

// awaitReady closes ready.
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
