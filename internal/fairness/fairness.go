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

// Config configures Fairness.
type Config struct {
	// Client accesses the flowcontrol objects. Its requests must not wait for seats themselves.
	Client clients.Interface
	// Seats is the number of seats shared by the priority levels. It must be positive.
	Seats int
	// Stats returns the number and size of the stored objects of a resource, which determine the width of a list. If nil, every
	// list is one seat wide.
	Stats func(groupResource string) (storage.Stats, error)
	// WithoutEtcd, if set, reports whether writes are impossible now. The objects are then used unchanged.
	WithoutEtcd func() bool
	// Metrics count requests. May be nil.
	Metrics *metrics.Fairness
	// Logger receives errors about objects that cannot be maintained. May be nil.
	Logger *zap.Logger
}

// Fairness assigns seats to requests.
type Fairness struct {
	cfg     Config
	log     *zap.Logger
	dropped flowcontrol.DroppedRequestsTracker
	ready   chan struct{}

	dispatcher atomic.Pointer[dispatcher] // nil before Run
}

// dispatcher seats requests. It uses the mandatory objects until it has received the stored ones.
type dispatcher struct {
	controller flowcontrol.Interface // k8s.io/apiserver's controller, which follows the objects and divides the seats among the levels
	classifier *classifier
	estimate   fcrequest.WorkEstimatorFunc
}

// newDispatcher returns a dispatcher that makes k8s.io/apiserver's controller use the levels of this package.
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

// Ready is closed when the objects are listed and the mandatory ones exist.
func (f *Fairness) Ready() <-chan struct{} { return f.ready }

// Run follows the objects and maintains the required ones until ctx ends. It must be called only once. k8s.io/apiserver's
// controller ends two of its loops with ctx without waiting for them. They are idle or reading a cache, because no more
// statuses are written.
func (f *Fairness) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	fcmetrics.Register() // before k8s.io/apiserver's controller looks up its gauges, because unregistered gauges are slow
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
		stopped := ctx.Err() != nil
		cancel()
		_ = d.controller.Run(ctx.Done()) // returns at once, and ends the goroutines of the controller's queue
		if stopped {
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

// RegisterWatch counts a watch among the watches that make a write expensive. The caller ends this with forget.
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
