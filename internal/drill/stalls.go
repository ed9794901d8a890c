package drill

import (
	"context"
	"time"
)

const (
	// pulseInterval is how often the drill looks whether time goes on.
	pulseInterval = 20 * time.Millisecond
	// stall is how late a beat may be before the machine counts as standing still, and aftermath how long after that
	// things still catch up: answers that were waiting, connections that were given up because nobody got to answer a ping.
	stall     = 300 * time.Millisecond
	aftermath = 2 * time.Second
)

// pulse writes down when this process did not get to run. The extension servers are in it, and a front door of our own is:
// what went wrong then says something about the machine, and nothing about the front door.
func (r *recorder) pulse(ctx context.Context) {
	ticker := time.NewTicker(pulseInterval)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		if now.Sub(last) > stall {
			r.change(func(h *History) { h.Stalls = append(h.Stalls, Span{last, now}) })
		}
		last = now
	}
}

// stood reports that the machine stood still during the request, or so shortly before it that it was still catching up.
func (h *History) stood(r Request) bool {
	for _, s := range h.Stalls {
		if r.Start.Before(s.To.Add(aftermath)) && r.Start.Add(r.Took).After(s.From) {
			return true
		}
	}
	return false
}

// excused are requests that must not be held against the front door.
func (h *History) excused(r Request) bool { return h.planned(r) || h.stood(r) }

// longestStall is the worst of them; zero when there was none.
func (h *History) longestStall() time.Duration {
	var worst time.Duration
	for _, s := range h.Stalls {
		worst = max(worst, s.To.Sub(s.From))
	}
	return worst
}
