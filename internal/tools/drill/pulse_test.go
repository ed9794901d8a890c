package drill

import (
	"slices"
	"testing"
	"time"
)

// A busy machine is often late by a short time. Deadlines fail as on a stalled machine, so frequent short delays count as a stall.
func TestLongDelaysAreReportedAsStalls(t *testing.T) {
	for name, c := range map[string]struct {
		gaps  []time.Duration // between beats, repeated for ten seconds
		stood bool
	}{
		"on time":                     {[]time.Duration{pulseInterval}, false},
		"early after late":            {[]time.Duration{pulseInterval + 5*time.Millisecond, pulseInterval - 5*time.Millisecond}, false},
		"late once in two seconds":    {append([]time.Duration{250 * time.Millisecond}, slices.Repeat([]time.Duration{pulseInterval}, 100)...), false},
		"late for long at once":       {append([]time.Duration{stall + 2*pulseInterval}, slices.Repeat([]time.Duration{pulseInterval}, 100)...), true},
		"late by as much as it beats": {[]time.Duration{2 * pulseInterval}, true},
	} {
		start := time.Unix(0, 0)
		p, stood := pulse{last: start}, false
		now := start
		for i := 0; now.Sub(start) < 10*time.Second; i++ {
			now = now.Add(c.gaps[i%len(c.gaps)])
			s, yes := p.beat(now)
			stood = stood || yes
			if yes && (!s.To.Equal(now) || !s.From.Before(now)) {
				t.Errorf("%s: stall from %v to %v, want one that ends at %v", name, s.From, s.To, now)
			}
		}
		if stood != c.stood {
			t.Errorf("%s: stall reported = %t, want %t", name, stood, c.stood)
		}
	}
}
