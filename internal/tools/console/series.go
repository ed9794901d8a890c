package console

import (
	"math"
	"strconv"
	"time"
)

const (
	// maxPoints is the length of a chart: ten minutes at the default interval.
	maxPoints = 300
	// maxSeries bounds the number of all series. New series beyond it are dropped.
	maxSeries = 12_000
)

// value is a point of a chart, NaN if it is missing.
type value float64

// MarshalJSON writes four significant digits, and null for a missing value.
func (v value) MarshalJSON() ([]byte, error) {
	f := float64(v)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, f, 'g', 4, 64), nil
}

var none = value(math.NaN())

// ring holds the latest points of one series. All series share the same numbered samples.
type ring struct {
	points []float32
	last   int // sample number of the latest point
}

// set sets the point at a sample. Skipped samples become gaps.
func (r *ring) set(sample int, v float64) {
	if len(r.points) == 0 {
		r.last = sample - 1
	}
	if missed := sample - r.last - 1; missed >= maxPoints {
		r.points = r.points[:0]
	} else {
		for range missed {
			r.points = append(r.points, float32(math.NaN()))
		}
	}
	if sample > r.last {
		r.points, r.last = append(r.points, float32(v)), sample
	}
	if over := len(r.points) - maxPoints; over > 0 {
		r.points = append(r.points[:0], r.points[over:]...)
	}
}

// until returns the points up to a sample, at most n, with gaps for missing points.
func (r *ring) until(sample, n int) []value {
	if r == nil || len(r.points) == 0 || sample-r.last >= n {
		return nil
	}
	out := make([]value, 0, min(n, len(r.points)+sample-r.last))
	first := max(0, len(r.points)+sample-r.last-n)
	for _, p := range r.points[min(first, len(r.points)):] {
		out = append(out, value(p))
	}
	for range sample - r.last {
		out = append(out, none)
	}
	return out
}

// latest returns the last value that is a number.
func latest(values []value) value {
	for i := len(values) - 1; i >= 0; i-- {
		if !math.IsNaN(float64(values[i])) {
			return values[i]
		}
	}
	return none
}

// charts holds all series by replica, pool, endpoint and measure.
type charts struct {
	sample int
	times  []time.Time // of the latest samples, at most maxPoints
	rings  map[chartKey]*ring
}

type chartKey struct {
	replica           string
	pool              pool
	endpoint, measure string
}

func newCharts() *charts { return &charts{rings: map[chartKey]*ring{}} }

// next begins a sample. At intervals of maxPoints it deletes the series without a point in that interval.
func (c *charts) next(now time.Time) {
	c.sample++
	c.times = append(c.times, now)
	c.times = c.times[max(0, len(c.times)-maxPoints):]
	if c.sample%maxPoints != 0 {
		return
	}
	for k, r := range c.rings {
		if c.sample-r.last >= maxPoints {
			delete(c.rings, k)
		}
	}
}

// span returns the time between the first and the last of n points in seconds. Samples may be later than planned, so it
// extrapolates from their times, or from the planned interval if there are fewer than two.
func (c *charts) span(n int, planned float64) float64 {
	taken := c.times[max(0, len(c.times)-n):]
	if len(taken) >= 2 {
		planned = taken[len(taken)-1].Sub(taken[0]).Seconds() / float64(len(taken)-1)
	}
	return math.Round(planned * float64(n-1))
}

func (c *charts) set(k chartKey, v float64) {
	r := c.rings[k]
	if r == nil {
		if len(c.rings) >= maxSeries {
			return
		}
		r = &ring{}
		c.rings[k] = r
	}
	r.set(c.sample, v)
}

func (c *charts) get(k chartKey, n int) []value { return c.rings[k].until(c.sample, n) }
