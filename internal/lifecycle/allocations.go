package lifecycle

import (
	"context"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/run"
)

const (
	// repairPause is between two looks at all Services and what they have claimed.
	repairPause = time.Minute
	// abandonedPause is between two looks for writes of replicas that have ended, which cost etcd next to nothing. What they had
	// claimed is free again that long after their lease has run out.
	abandonedPause = 2 * time.Second
)

// allocationRepair has claims of addresses and ports mended: at the start, now and then, and when a replica ended while it
// wrote a Service.
type allocationRepair struct {
	repair    func(context.Context) error
	abandoned func(context.Context) (bool, error)
	election  election
	log       *zap.Logger
}

func (r *allocationRepair) run(ctx context.Context) error {
	var last time.Time
	for r.election.await(ctx) {
		if time.Since(last) >= repairPause || r.isNeeded(ctx) {
			last = time.Now()
			if err := r.repair(ctx); err != nil && ctx.Err() == nil {
				r.log.Warn("addresses and ports of services were not all looked after, trying again", zap.Error(err))
			}
		}
		if !run.Pause(ctx, abandonedPause) {
			return nil
		}
	}
	return nil
}

// isNeeded does not say why it cannot tell: the next look at everything will.
func (r *allocationRepair) isNeeded(ctx context.Context) bool {
	abandoned, err := r.abandoned(ctx)
	return err == nil && abandoned
}
