package lifecycle

import (
	"context"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/run"
)

// repairPause is between two looks at all Services and what they have claimed.
const repairPause = time.Minute

// allocationRepair has claims of addresses and ports mended.
type allocationRepair struct {
	repair   func(context.Context) error
	election election
	log      *zap.Logger
}

func (r *allocationRepair) run(ctx context.Context) error {
	for r.election.await(ctx) {
		if err := r.repair(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("addresses and ports of services were not all looked after, trying again", zap.Error(err))
		}
		if !run.Pause(ctx, repairPause) {
			return nil
		}
	}
	return nil
}
