package metrics

import (
	"slices"
	"sync/atomic"
	"time"
)

var (
	classNames = [...]string{"1xx", "2xx", "3xx", "4xx", "5xx"}
	// steps are those of an attempt that can fail.
	steps = [...]string{"dial", "tls", "roundtrip"}
)

// Backend is the counts of one backend. A nil *Backend counts nothing.
type Backend struct {
	classes                    [len(classNames)]atomic.Int64
	failures                   [len(steps)]atomic.Int64
	connected, refused         atomic.Int64
	ejections, limited, broken atomic.Int64
	inFlight, tunnels          atomic.Int64
	duration                   durations
}

// Answered counts response headers.
func (b *Backend) Answered(code int, after time.Duration) {
	if b == nil {
		return
	}
	if class := code/100 - 1; class >= 0 && class < len(b.classes) {
		b.classes[class].Add(1)
	}
	b.duration.observe(after)
}

// Failed counts an attempt without response headers.
func (b *Backend) Failed(step string) {
	if b == nil {
		return
	}
	if i := slices.Index(steps[:], step); i >= 0 {
		b.failures[i].Add(1)
	}
}

// Dialled counts a connection attempt.
func (b *Backend) Dialled(ok bool) {
	switch {
	case b == nil:
	case ok:
		b.connected.Add(1)
	default:
		b.refused.Add(1)
	}
}

// Ejected counts an endpoint taken out of use.
func (b *Backend) Ejected() {
	if b != nil {
		b.ejections.Add(1)
	}
}

// Limited counts a request refused for want of a place.
func (b *Backend) Limited() {
	if b != nil {
		b.limited.Add(1)
	}
}

// InFlight adds to the requests that hold a place.
func (b *Backend) InFlight(n int) {
	if b != nil {
		b.inFlight.Add(int64(n))
	}
}

// Tunnels adds to the upgraded connections.
func (b *Backend) Tunnels(n int) {
	if b != nil {
		b.tunnels.Add(int64(n))
	}
}

// Broken counts a response that ended too early.
func (b *Backend) Broken() {
	if b != nil {
		b.broken.Add(1)
	}
}

// durationLimits are the upper limits of the buckets of durations.
var durationLimits = [...]time.Duration{
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second,
	2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
}

// durations is a histogram: how many were within each limit and not within the one before, those beyond the last at the
// end, and how long all took.
type durations struct {
	within [len(durationLimits) + 1]atomic.Uint64
	sum    atomic.Int64 // nanoseconds
}

func (d *durations) observe(took time.Duration) {
	i := 0
	for i < len(durationLimits) && took > durationLimits[i] {
		i++
	}
	d.within[i].Add(1)
	d.sum.Add(int64(took))
}

// read returns what Prometheus wants to know: buckets hold all that was within their limits, in seconds.
func (d *durations) read() (count uint64, sum float64, buckets map[float64]uint64) {
	buckets = make(map[float64]uint64, len(durationLimits))
	for i, limit := range durationLimits {
		count += d.within[i].Load()
		buckets[limit.Seconds()] = count
	}
	return count + d.within[len(durationLimits)].Load(), time.Duration(d.sum.Load()).Seconds(), buckets
}
