package run

import (
	"context"
	"time"
)

// Every calls do now and then again at each interval, until ctx ends. A call that takes longer than an interval is
// followed by the next at once, and there are never two at a time. The error is always nil, so that it may end a
// Member's Run.
func Every(ctx context.Context, interval time.Duration, do func(ctx context.Context)) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		do(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Pause waits for d, and reports whether ctx is still alive then.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
