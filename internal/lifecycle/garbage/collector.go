package garbage

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"

	"portico.dev/internal/metrics"
)

// Config is what the collector needs. Every field is required.
type Config struct {
	// Client reaches every group-version, local or not, as the front door routes it. Its rate limits are the caller's.
	Client metadata.Interface
	// Discovery is what is served now, nil when that is not known yet. It must not block, and must return the same pointer
	// as long as nothing has changed.
	Discovery func() *Discovery
	// Leads says whether this replica is the one that collects, and changed is closed when that may have changed.
	Leads func() (leads bool, changed <-chan struct{})
	// Events takes what is to be told about objects.
	Events  corev1client.EventsGetter
	Metrics *metrics.Garbage
	Logger  *zap.Logger
}

// Collector collects garbage while its replica leads.
type Collector struct {
	cfg   Config
	rules rules
	log   *zap.Logger
}

// New prepares a collector.
func New(cfg Config) *Collector {
	return &Collector{cfg: cfg, rules: soundRules(), log: cfg.Logger.Named("garbage")}
}

// look is how often things are looked at that do not announce themselves: discovery, and a lease that ran out while etcd
// was away.
const look = time.Second

// Run blocks until ctx ends. Replicas that do not lead watch nothing: the graph is made anew in seconds, and to hold it
// everywhere would cost every replica what it costs one.
func (c *Collector) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		leads, changed := c.cfg.Leads()
		if leads {
			c.serve(ctx)
			continue
		}
		select {
		case <-changed:
		case <-time.After(look):
		case <-ctx.Done():
		}
	}
	return nil
}

// serve is one term of leading. It returns when everything that it started has.
func (c *Collector) serve(ctx context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t := newTerm(c.cfg, c.rules, c.log)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for ctx.Err() == nil {
			leads, changed := c.cfg.Leads()
			if !leads {
				cancel(errNotLeading)
				return
			}
			select {
			case <-changed:
			case <-time.After(look):
			case <-ctx.Done():
			}
		}
	}()
	t.run(ctx)
	if errors.Is(context.Cause(ctx), errNotLeading) {
		c.log.Info("another replica leads; this one collects no more")
	}
	cancel(nil)
	<-watched
}
