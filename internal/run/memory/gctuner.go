package memory

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// A garbage collection marks all live objects, about one MiB per millisecond of CPU. If the heap may grow by GOGC percent of
// the live heap and rate MiB are allocated per second, collections cost rate / GOGC * 100 ms per second, independent of the
// size of the live heap. The tuner chooses GOGC so that this is a fiftieth of one core, within bounds. The growth between two
// collections is called room below.
const (
	// percentPerMiB is GOGC for an allocation rate of one MiB per second.
	percentPerMiB = 5
	// minInterval is the minimum number of seconds between collections, within the bounds. It determines GOGC if the live heap
	// is small, as in a gateway: there the room for a fiftieth of a core is used up within a second, while the whole process
	// uses a fifth of a core.
	minInterval = 3
	// defaultGOGC is Go's default GOGC: the room equals the live heap.
	defaultGOGC = 100
	// minGOGC and minRoom are lower bounds of the room of a process that allocates little. The larger one applies. With a live
	// heap of 100 MiB and one MiB allocated per second, there is a collection every 25 seconds, and the room is a quarter of
	// the room with defaultGOGC.
	minGOGC, minRoom = 25, 16 << 20
	// maxGOGC bounds the room under load up to mediumRoom, and largeGOGC up to maxRoom. With only mediumRoom for 200 MiB of
	// small objects, collections were a third of the cost of a request. kube-apiserver uses defaultGOGC, but has more than
	// twice the live heap for the same objects, so that this program needs less memory even with largeGOGC.
	maxGOGC, mediumRoom = 400, 256 << 20
	largeGOGC, maxRoom  = 300, 512 << 20
	// headroomFraction limits the room to a fraction of the available memory, but not to less than the live heap.
	headroomFraction = 4
	// startGOGC is GOGC until the first check. A start allocates as much in that second as a load does.
	startGOGC = maxGOGC
	// step is the inverse of the minimum relative change of GOGC. Smaller changes are not applied, because each change stops
	// all goroutines for a moment.
	step = 8

	// interval is the interval between checks of the allocation rate.
	interval = time.Second
	// keepRate is the fraction of the allocation rate that is kept after an interval with fewer allocations. A load that pauses
	// for a few seconds then counts as one load.
	keepRate = 0.75
	// A rate of at least loadRate bytes per second is a load. It ends when the rate is below idleRate.
	loadRate, idleRate = 20 << 20, 2 << 20
)

// TuneGC lets the heap grow in proportion to the allocation rate, and calls release when a load has ended. It returns when ctx
// ends. It does nothing if the environment configures the garbage collector (GOGC, GOMEMLIMIT).
func TuneGC(ctx context.Context, release func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	defer debug.SetGCPercent(defaultGOGC)
	debug.SetGCPercent(startGOGC)
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	g := tuner{most: available() / headroomFraction}
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

// heap returns the bytes allocated since the start, the heap memory obtained from the operating system, and the live heap after
// the last collection.
func heap() (allocated, held, live uint64) {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	for _, s := range samples[2:] {
		held += s.Value.Uint64()
	}
	return samples[0].Value.Uint64(), held, samples[1].Value.Uint64()
}

// tuner computes GOGC.
type tuner struct {
	most      uint64  // maximum room in bytes, from the available memory
	allocated uint64  // at the last check
	rate      float64 // bytes per second, smoothed
	loaded    bool
	last      int // the last GOGC, 0 at first
}

// next returns the new GOGC, 0 for no change. over reports that a load has just ended and left more memory in use than there
// would be without it. A smaller excess, for example after an occasional large list, is not worth a collection.
func (g *tuner) next(allocated, held, live uint64) (percent int, over bool) {
	g.rate = max(float64(allocated-g.allocated)/interval.Seconds(), g.rate*keepRate)
	g.allocated = allocated
	percent = gogcFor(live, g.rate, g.most)
	switch {
	case g.rate >= loadRate:
		g.loaded = true
	case g.loaded && g.rate < idleRate:
		g.loaded = false
		over = held > live+live*uint64(max(percent, defaultGOGC))/100
	}
	if d := percent - g.last; g.last != 0 && max(d, -d)*step <= g.last {
		return 0, over
	}
	g.last = percent
	return percent, over
}

// gogcFor returns GOGC for a live heap, an allocation rate and the maximum room.
func gogcFor(live uint64, rate float64, most uint64) int {
	if live == 0 {
		return defaultGOGC
	}
	least := min(max(minGOGC, minRoom*100/live), maxGOGC)
	room := min(max(mediumRoom, live*largeGOGC/100), maxRoom, most)
	highest := max(least, min(max(room*100/live, defaultGOGC), maxGOGC))
	wanted := max(uint64(rate*percentPerMiB/(1<<20)), uint64(rate*minInterval*100)/live)
	return int(min(max(wanted, least), highest))
}
