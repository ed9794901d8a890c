package drill

import (
	"context"
	"slices"
	"time"
)

const (
	// pulseInterval is the interval between two beats.
	pulseInterval = 20 * time.Millisecond
	// stall is the total delay of beats within pulseWindow from which the machine counts as stalled. aftermath is how
	// long the effects last after that: delayed responses, and connections closed because a ping was answered too
	// late.
	stall       = 300 * time.Millisecond
	pulseWindow = time.Second
	aftermath   = 2 * time.Second
)

// pulse detects that this process does not run, either for a long time at once or repeatedly within a short time, as
// on an overloaded machine.
type pulse struct {
	last  time.Time
	late  []beat // within pulseWindow, oldest first
	total time.Duration
}

type beat struct {
	from time.Time
	late time.Duration
}

// beat is called every pulseInterval. It returns a stall that ends now, if there is one.
func (p *pulse) beat(now time.Time) (Span, bool) {
	from := p.last
	p.last = now
	for len(p.late) > 0 && now.Sub(p.late[0].from) > pulseWindow {
		p.total -= p.late[0].late
		p.late = p.late[1:]
	}
	late := now.Sub(from) - pulseInterval
	if late <= 0 {
		return Span{}, false
	}
	p.late = append(p.late, beat{from, late})
	p.total += late
	if p.total <= stall {
		return Span{}, false
	}
	s := Span{p.late[0].from, now}
	p.late, p.total = nil, 0
	return s, true
}

// feelPulse records when this process did not run. The extension servers, and our own front doors, run in this
// process, so failures in such an interval are caused by the machine and not by the front door.
func (r *recorder) feelPulse(ctx context.Context) {
	ticker := time.NewTicker(pulseInterval)
	defer ticker.Stop()
	p := pulse{last: time.Now()}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if s, stood := p.beat(time.Now()); stood {
			r.change(func(h *History) { h.Stalls = append(h.Stalls, s) })
		}
	}
}

// stood reports whether the machine stalled during the request, or shortly before it.
func (h *History) stood(r Request) bool {
	return slices.ContainsFunc(h.Stalls, func(s Span) bool {
		return r.Start.Before(s.To.Add(aftermath)) && r.Start.Add(r.Took).After(s.From)
	})
}

// excused reports whether a request that violates an expectation must not count against the front door. It records
// the requests that are excused by a stall, so callers must check first that the request violates the expectation.
func (h *History) excused(r Request) bool {
	if h.planned(r) {
		return true
	}
	if !h.stood(r) {
		return false
	}
	if h.excuses == nil {
		h.excuses = map[Request]struct{}{}
	}
	h.excuses[r] = struct{}{}
	return true
}

// longestStall returns the longest stall, or zero.
func (h *History) longestStall() time.Duration {
	var worst time.Duration
	for _, s := range h.Stalls {
		worst = max(worst, s.To.Sub(s.From))
	}
	return worst
}
