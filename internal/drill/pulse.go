package drill

import (
	"context"
	"slices"
	"time"
)

const (
	// pulseInterval is how often the drill looks whether time goes on.
	pulseInterval = 20 * time.Millisecond
	// stall is how late beats may be within pulseWindow before the machine counts as standing still, and aftermath how long
	// after that things still catch up: answers that were waiting, connections that were given up because nobody got to answer
	// a ping.
	stall       = 300 * time.Millisecond
	pulseWindow = time.Second
	aftermath   = 2 * time.Second
)

// pulse notices when this process does not get to run: for long at once, or too often in a short time, as on a machine that
// has too much to do.
type pulse struct {
	last  time.Time
	late  []beat // within pulseWindow, oldest first
	total time.Duration
}

type beat struct {
	from time.Time
	late time.Duration
}

// beat is called each pulseInterval. It reports a stall that ends now, if there is one.
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

// feelPulse writes down when this process did not get to run. The extension servers are in it, and a front door of our own is:
// what went wrong then says something about the machine, and nothing about the front door.
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

// stood reports that the machine stood still during the request, or so shortly before it that it was still catching up.
func (h *History) stood(r Request) bool {
	return slices.ContainsFunc(h.Stalls, func(s Span) bool {
		return r.Start.Before(s.To.Add(aftermath)) && r.Start.Add(r.Took).After(s.From)
	})
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
