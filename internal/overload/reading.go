package overload

import (
	"runtime/metrics"
	"time"
)

// Reading is a measurement of the memory in use.
type Reading struct {
	// InUse is the memory that is certainly in use. Allocated also includes memory allocated since the last
	// collection, part of which is garbage.
	InUse, Allocated uint64
	// Cycles is the number of completed collections.
	Cycles uint64
}

// groupEvery is the interval between readings of the control group, which are relatively expensive.
const groupEvery = 100 * time.Millisecond

// reader reads the runtime's metrics and the control group.
type reader struct {
	limit   Limit
	samples []metrics.Sample
	outside uint64 // memory of the control group not used by this process
	looked  time.Time
}

const (
	sampleTotal = iota
	sampleReleased
	sampleFree
	sampleObjects
	sampleLive
	sampleCycles
)

func newReader(l Limit) *reader {
	return &reader{limit: l, samples: []metrics.Sample{
		sampleTotal:    {Name: "/memory/classes/total:bytes"},
		sampleReleased: {Name: "/memory/classes/heap/released:bytes"},
		sampleFree:     {Name: "/memory/classes/heap/free:bytes"},
		sampleObjects:  {Name: "/memory/classes/heap/objects:bytes"},
		sampleLive:     {Name: "/gc/heap/live:bytes"},
		sampleCycles:   {Name: "/gc/cycles/total:gc-cycles"},
	}}
}

func (r *reader) read() Reading {
	metrics.Read(r.samples)
	at := func(i int) uint64 { return r.samples[i].Value.Uint64() }
	total := subtract(at(sampleTotal), at(sampleReleased))
	allocated := subtract(total, at(sampleFree))
	inUse := subtract(allocated, subtract(at(sampleObjects), at(sampleLive)))
	if now := time.Now(); r.limit.group != nil && now.Sub(r.looked) >= groupEvery {
		r.looked = now
		if used, ok := r.limit.group.Used(); ok {
			r.outside = subtract(used, total)
		}
	}
	return Reading{InUse: inUse + r.outside, Allocated: allocated + r.outside, Cycles: at(sampleCycles)}
}

// subtract returns a-b, or 0 if b is larger, because the values are not from the same instant.
func subtract(a, b uint64) uint64 { return a - min(a, b) }
