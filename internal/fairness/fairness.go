package fairness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/eventclock"
	fcmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	fcrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/informers"

	"portico.dev/internal/clients"
	"portico.dev/internal/metrics"
)

// Config is what Fairness needs.
type Config struct {
	// Client reaches the flowcontrol objects, but not through the chain whose requests wait for seats.
	Client clients.Interface
	// Seats is how many seats the priority levels share. It must be positive.
	Seats int
	// Stats says how many objects of a resource are stored and how large they are, which is how wide a list is. Nil:
	// every list is one seat wide.
	Stats func(groupResource string) (storage.Stats, error)
	// WithoutEtcd, if set, reports whether nothing can be written now: the objects are then used as they are.
	WithoutEtcd func() bool
	// Metrics count requests. May be nil.
	Metrics *metrics.Fairness
	// Logger gets errors about objects that cannot be maintained. May be nil.
	Logger *zap.Logger
}

// Fairness gives requests their seats.
type Fairness struct {
	cfg     Config
	log     *zap.Logger
	dropped flowcontrol.DroppedRequestsTracker
	ready   chan struct{}

	dispatcher atomic.Pointer[dispatcher] // nil before Run
}

// dispatcher seats requests, by the mandatory objects until it has seen the stored ones.
type dispatcher struct {
	controller flowcontrol.Interface // of the library: it follows the objects and divides the seats among the levels
	classifier *classifier
	estimate   fcrequest.WorkEstimatorFunc
}

// newDispatcher makes the library's controller use levels of ours.
func newDispatcher(cfg *Config, statuses *statusWriter, factory informers.SharedInformerFactory) (*dispatcher, error) {
	levels, err := newClassifier(factory.Flowcontrol().V1(), cfg.Metrics)
	if err != nil {
		return nil, err
	}
	controller := flowcontrol.NewTestable(flowcontrol.TestableConfig{
		Name: "fairness", Clock: eventclock.Real{}, AsFieldManager: flowcontrol.ConfigConsumerAsFieldManager,
		FoundToDangling: func(found bool) bool { return !found },
		InformerFactory: factory, FlowcontrolClient: statuses, ServerConcurrencyLimit: cfg.Seats,
		ReqsGaugeVec:      fcmetrics.PriorityLevelConcurrencyGaugeVec,
		ExecSeatsGaugeVec: fcmetrics.PriorityLevelExecutionSeatsGaugeVec,
		QueueSetFactory:   levels,
	})
	return &dispatcher{controller: controller, classifier: levels, estimate: fcrequest.NewWorkEstimator(
		cfg.Stats, controller.GetInterestedWatchCount, fcrequest.DefaultWorkEstimatorConfig(), controller.GetMaxSeats)}, nil
}

// New returns a Fairness that seats no request until Run has begun.
func New(cfg Config) (*Fairness, error) {
	if cfg.Client == nil || cfg.Seats <= 0 {
		return nil, errors.New("fairness: a client and at least one seat are needed")
	}
	cfg.Logger = cmp.Or(cfg.Logger, zap.NewNop())
	if cfg.Metrics == nil {
		cfg.Metrics = metrics.NewFairness(prometheus.NewRegistry())
	}
	if cfg.Stats == nil {
		cfg.Stats = func(string) (storage.Stats, error) { return storage.Stats{}, fcrequest.ObjectCountNotFoundErr }
	}
	return &Fairness{
		cfg: cfg, log: cfg.Logger, dropped: flowcontrol.NewDroppedRequestsTracker(), ready: make(chan struct{}),
	}, nil
}

// Ready is closed when the objects are known and the mandatory ones exist.
func (f *Fairness) Ready() <-chan struct{} { return f.ready }

// Run follows the objects and maintains those that must exist until ctx ends. It can be called once. The library ends
// two loops of its own with ctx without waiting for them; they are asleep, or reading a cache, since no status is written
// any more.
func (f *Fairness) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	fcmetrics.Register() // before the library looks up its gauges: later they would be slow ones
	factory := clients.NewInformers(f.cfg.Client, nil).ForLibrary()
	statuses := &statusWriter{FlowcontrolV1Interface: f.cfg.Client.FlowcontrolV1(), ctx: ctx}
	defer func() {
		cancel()
		statuses.wait()
		factory.Shutdown()
	}()
	ensurer, err := newEnsurer(f.cfg.Client.FlowcontrolV1(), factory.Flowcontrol().V1())
	if err != nil {
		return fmt.Errorf("fairness: %w", err)
	}
	d, err := newDispatcher(&f.cfg, statuses, factory)
	if err != nil {
		return fmt.Errorf("fairness: %w", err)
	}
	f.dispatcher.Store(d)
	factory.Start(ctx.Done())
	ensurer.withoutEtcd = f.cfg.WithoutEtcd
	if err := ensurer.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("fairness: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- d.controller.Run(ctx.Done()) }()
	close(f.ready)
	ensurer.run(ctx, f.log)
	return <-ended
}

// RegisterWatch counts a watch among those that make a write expensive, until the function that it returns is called.
func (f *Fairness) RegisterWatch(r *http.Request) (forget func()) {
	e := f.dispatcher.Load()
	info, ok := apirequest.RequestInfoFrom(r.Context())
	if e == nil || !ok || info.Verb != "watch" {
		return func() {}
	}
	if forget := e.controller.RegisterWatch(r); forget != nil {
		return forget
	}
	return func() {}
}
