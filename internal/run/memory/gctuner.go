package memory

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// A collection marks everything that is alive, about a MiB in a millisecond of CPU. If there is room for as much garbage as
// GOGC percent of what is alive, and rate MiB are allocated a second, it costs rate / GOGC * 100 ms a second, however much is
// alive. The tuner chooses GOGC so that this is a fiftieth of one core, within bounds.
const (
	// percentPerMiB is GOGC for a rate of a MiB a second.
	percentPerMiB = 5
	// minInterval is how many seconds apart collections are at least, within the bounds. It is what counts while little is alive, as in a
	// gateway: there the room of a fiftieth of a core is used up in a second, and such a process uses a fifth of a core in all.
	minInterval = 3
	// defaultGOGC is Go's own GOGC: the room is what is alive.
	defaultGOGC = 100
	// minGOGC and minRoom bound the room of a process that allocates little: whichever is more. With 100 MiB alive and a MiB
	// allocated each second there is a collection in 25 seconds, and a quarter of the memory that defaultGOGC would take.
	minGOGC, minRoom = 25, 16 << 20
	// maxGOGC bounds the room under load up to mediumRoom, and largeGOGC up to maxRoom. With as little room as mediumRoom for 200 MiB
	// of small objects, collections were a third of what a request costs. kube-apiserver has defaultGOGC, and with the same objects
	// more than twice as much is alive there: with largeGOGC we need less memory all the same.
	maxGOGC, mediumRoom = 400, 256 << 20
	largeGOGC, maxRoom  = 300, 512 << 20
	// headroomFraction is the part of the available memory that the room is at most, as far as that is more than what is alive.
	headroomFraction = 4
	// startGOGC is GOGC until the first look. A start allocates as much in that second as a load does.
	startGOGC = maxGOGC
	// step is by how much of itself GOGC must change to be set: each time all goroutines stop for a moment.
	step = 8

	// interval is how often allocations are checked.
	interval = time.Second
	// keepRate is the part of the rate of allocations that is kept after an interval with fewer: a load that pauses for a few
	// seconds is one.
	keepRate = 0.75
	// loadRate in bytes a second is a load, less than idleRate is none any more.
	loadRate, idleRate = 20 << 20, 2 << 20
)

// TuneGC gives the heap room in proportion to what is allocated, and calls release when a load has ended. It returns when ctx
// ends. It does nothing where the environment configures the collector (GOGC, GOMEMLIMIT).
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

// heap is how much was allocated since the start, what the heap has of the operating system, and what the last collection
// found alive.
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

// tuner decides what GOGC is to be.
type tuner struct {
	most      uint64  // bytes of room that there is memory for
	allocated uint64  // at the last check
	rate      float64 // bytes a second, smoothed
	loaded    bool
	last      int // GOGC that was decided, 0 at first
}

// next is the new GOGC, 0 for no change, and whether a load has just ended that left more memory in use than there
// would be without it. What leaves less, an occasional large list, is not worth a collection each time.
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

// gogcFor is GOGC for what is alive and a rate of allocations.
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
