package run

import (
	"context"
	"time"
)

// Every calls do immediately and then at each interval, until ctx ends. A call that takes longer than an interval is followed
// by the next one immediately. Calls never overlap. Every always returns nil, so that its result can be returned by a Member's
// Run.
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

// Pause waits for d. It returns false if ctx has ended.
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
