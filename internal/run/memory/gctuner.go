package memory

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// defaultGOGC is Go's own GOGC: a collection when the heap has doubled.
	defaultGOGC = 100
	// maxGOGC is GOGC under load: a collection marks everything that is alive, so that with room in proportion its
	// share of the time of a request is the same however much that is.
	maxGOGC = 400
	// maxHeadroom bounds how much may be allocated between two collections, unless that is less than what is alive, and
	// headroomFraction the part of the available memory for it.
	maxHeadroom, headroomFraction = 512 << 20, 4
	// interval is how often allocations are checked.
	interval = time.Second
	// loadBytes allocated in one interval are a load: at the default GOGC, collections would mark as much in that time,
	// whatever is alive. Less than idleBytes is none.
	loadBytes, idleBytes = 20 << 20, 5 << 20
	// idleIntervals intervals without a load are its end, each interval above idleBytes taking back busyIntervals of
	// them: a large list every ten seconds is no load.
	idleIntervals, busyIntervals = 15, 3
)

// TuneGC trades memory for time while there is load, and calls release when a load has ended. A front door keeps tens
// of MiB of objects and documents alive, which every collection marks; at tens of thousands of requests a second that
// would be several times a second and a tenth of all time. It returns when ctx ends. It does nothing where the
// environment configures the collector (GOGC, GOMEMLIMIT).
func TuneGC(ctx context.Context, release func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	defer debug.SetGCPercent(defaultGOGC)
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	g := tuner{headroom: min(maxHeadroom, available()/headroomFraction)}
	g.allocated, _, _ = heap()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		percent, over := g.next(heap())
		if percent != 0 {
			debug.SetGCPercent(percent)
		}
		if over {
			release()
		}
	}
}

// heap is how much was allocated since the start, what is alive or has not been collected yet, and what the last collection
// found alive.
func heap() (allocated, held, live uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64()
}

// tuner decides what GOGC is to be.
type tuner struct {
	allocated uint64 // at the last check
	idle      int    // intervals without a load
	loaded    bool
	last      int    // GOGC while loaded
	headroom  uint64 // bytes
}

// next is the new GOGC, 0 for no change, and whether a load has just ended that left more memory in use than there
// would be without it. What leaves less, an occasional large list, is not worth a collection each time.
func (g *tuner) next(allocated, held, live uint64) (percent int, over bool) {
	grown := allocated - g.allocated
	g.allocated = allocated
	switch {
	case grown >= loadBytes:
		g.loaded, g.idle = true, 0
	case !g.loaded:
		return 0, false
	case grown >= idleBytes:
		g.idle = max(0, g.idle-busyIntervals)
	default:
		g.idle++
	}
	if g.idle >= idleIntervals {
		*g = tuner{allocated: allocated, headroom: g.headroom}
		return defaultGOGC, held > live+live*defaultGOGC/100
	}
	if percent = gogcFor(live, g.headroom); percent == g.last {
		return 0, false
	}
	g.last = percent
	return percent, false
}

// gogcFor is GOGC under load.
func gogcFor(live, room uint64) int {
	if live == 0 {
		return defaultGOGC
	}
	return int(max(defaultGOGC, min(maxGOGC, room*100/live)))
}
