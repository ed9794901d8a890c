package apiservice

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/workqueue"
	aggregatorclientset "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	aggregatorinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions/apiregistration/v1"
	aggregatorlisters "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"

	"portico.dev/internal/metrics"
	"portico.dev/internal/transport"
)

// Config is what a Controller needs. Every field without a default is required.
type Config struct {
	// Client writes APIServices and their status.
	Client aggregatorclientset.Interface
	// The informers must be started by the caller after New, which asks their factories for them, and must stop after
	// Run has returned.
	APIServices    aggregatorinformers.APIServiceInformer
	Services       coreinformers.ServiceInformer
	EndpointSlices discoveryinformers.EndpointSliceInformer
	// CRDs, if set, are the definitions whose group-versions this server serves. Default nil: none, and APIServices that
	// were kept for CRDs are deleted.
	CRDs apiextensionsinformers.CustomResourceDefinitionInformer
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
	// Replica is this replica's name among them, as people read it in conditions and Events.
	Replica string
	// Events is where Kubernetes Events are written. Default nil: none are.
	Events typedcorev1.EventsGetter
	// DocumentTrouble, if set, says what is wrong with the OpenAPI document of an APIService's backend, in words that are
	// the same while it is the same; empty when nothing is. It is called often and must not block.
	DocumentTrouble func(apiService string) string
	// Spoke, if set, is told of a backend that may serve something else than before: its answer to a probe is not what it was,
	// or it is well after its connection was lost or its endpoints changed. It must not block.
	Spoke func(b *transport.Backend)
	// Debts, if set, are what has to be cleaned up at backends before anybody may use them. Default nil: nothing.
	Debts   Debts
	Metrics *metrics.Availability
	Logger  *zap.Logger
}

// settleTime is how long Ready waits for the first answers of backends, so that a restart does not greet clients with
// 503 for backends that are well, and so that a backend that hangs holds up nobody for longer.
const settleTime = time.Second

// Controller keeps the Table true.
type Controller struct {
	cfg      Config
	log      *zap.Logger
	lister   aggregatorlisters.APIServiceLister
	resolver *resolver
	wanted   *wanted

	registrar *registrar
	council   *council
	herald    *herald
	scribe    *scribe
	troubles  troubles
	debts     troubles
	prober    *prober
	monitors  monitors
	journal   transitions

	queue workqueue.TypedDelayingInterface[event]
	ready chan struct{}

	// entries belongs to the loop.
	entries map[string]*entry
	synced  bool
	// kept is the backends that the transport was last told to keep.
	kept map[*transport.Backend]bool

	table atomic.Pointer[Table]
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
	c := &Controller{
		cfg:    cfg,
		log:    cfg.Logger.Named("apiservice"),
		lister: cfg.APIServices.Lister(),
		resolver: &resolver{
			services:        cfg.Services.Lister(),
			slices:          cfg.EndpointSlices.Lister(),
			endpointRouting: cfg.EndpointRouting,
		},
		wanted:   newWanted(cfg.Local, crds),
		prober:   newProber(),
		monitors: newMonitors(),
		ready:    make(chan struct{}),
		entries:  make(map[string]*entry),
		changed:  make(chan struct{}),
	}
	c.table.Store(&Table{})
	client := cfg.Client.ApiregistrationV1().APIServices()
	c.registrar = newRegistrar(client, c.lister, c.wanted, c.log)
	c.council = newCouncil(cfg.Peers, cfg.Replica, c.log)
	c.herald = newHerald(cfg.Events, cfg.Replica, c.log)
	c.scribe = &scribe{
		client: client, lister: c.lister, table: c.Table, council: c.council, herald: c.herald, log: c.log,
		reworded: make(map[string]time.Time),
	}
	return c
}

// Table returns the current table.
func (c *Controller) Table() *Table { return c.table.Load() }

// Changed returns a channel that is closed at the next change of the table. Take it before reading the table, or the
// change between the two is missed.
func (c *Controller) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Ready is closed when the built-in group-versions have their APIServices, every APIService that was found at start is
// in the table, and backends had a moment to give their first answer.
func (c *Controller) Ready() <-chan struct{} { return c.ready }

// ReportFailure tells that a request to a backend failed on the way. A backend that was believed to be well is probed
// soon, and the verdict follows. It does not block: it is what transport.Options.OnFailure wants to call.
func (c *Controller) ReportFailure(b *transport.Backend) {
	if m, ok := c.monitors.get(b); ok && m.well() {
		m.shake()
	}
}

// ReportSuccess tells that a backend answered a request, with whatever status. While requests are answered, there is no
// need to probe. It does not block.
func (c *Controller) ReportSuccess(b *transport.Backend) {
	if m, ok := c.monitors.get(b); ok {
		m.vouch()
	}
}

// askGap is the least time between two probes that ProbeSoon asks for.
const askGap = 2 * time.Second

// ProbeSoon tells that somebody waits for the return of an APIService's backend. One that has been away for long is
// probed twice a minute only; while a namespace waits for it, every other second. It does not block.
func (c *Controller) ProbeSoon(apiService string) {
	for _, r := range c.Table().Routes() {
		if r.Name != apiService || r.Backend == nil {
			continue
		}
		if m, ok := c.monitors.get(r.Backend); ok && time.Since(m.history(r.GroupVersion).last.at) > askGap {
			m.nudge()
		}
	}
}

// Run keeps the table until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	c.queue = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[event]{Name: "apiservice_routes"})
	c.registrar.prepare()
	c.scribe.prepare()
	// What has a worker shuts its queue down itself; this is for a Run that ends before they start.
	defer c.scribe.queue.ShutDown()
	defer c.registrar.queue.ShutDown()
	defer c.queue.ShutDown()

	stop, synced, err := c.listen(ctx)
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
	for _, part := range []func(context.Context) error{c.registrar.run, c.herald.run} {
		wg.Go(func() {
			if err := part(ctx); err != nil {
				failed <- err
			}
		})
	}
	for _, part := range []func(context.Context){c.scribe.run, c.settle, c.confer, c.followDocuments, c.followDebts} {
		wg.Go(func() { part(ctx) })
	}
	wg.Go(func() { c.monitors.rota.Run(ctx) })
	loop := make(chan struct{})
	wg.Go(func() {
		defer close(loop)
		c.loop()
	})
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	cancel()
	c.queue.ShutDown()
	<-loop
	c.monitors.retain(nil)
	return err
}

// settle closes ready when the time has come.
func (c *Controller) settle(ctx context.Context) {
	select {
	case <-c.registrar.registered:
	case <-ctx.Done():
		return
	}
	patience := time.NewTimer(settleTime)
	defer patience.Stop()
	for {
		changed := c.Changed()
		if !anyUnchecked(c.Table()) {
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

func anyUnchecked(t *Table) bool {
	for _, r := range t.Routes() {
		if r.Condition.Reason == notChecked {
			return true
		}
	}
	return false
}
