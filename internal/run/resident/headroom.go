package resident

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// ordinary is Go's own GOGC: a collection when the heap has doubled.
	ordinary = 100
	// most is GOGC under load: a collection walks through all that is alive, so that with room in proportion its share of the
	// time of a request is the same however much there is to remember.
	most = 400
	// room bounds how much may be allocated between two collections, unless that is less than what is alive, and quarter
	// the part of the memory that there is (memory) for it.
	room, quarter = 512 << 20, 4
	// lookEvery is how often is looked at what was allocated.
	lookEvery = time.Second
	// much allocated from one look to the next is a load: at the ordinary GOGC collections would walk through as much in that
	// time, whatever is alive. Less than little is none.
	much, little = 20 << 20, 5 << 20
	// calmAfter is how many looks at little are the end of a load, each look at more taking lively of them back: a large list
	// every ten seconds is none.
	calmAfter, lively = 15, 3
)

// Headroom trades memory for time while there is load, and calls letGo when a load has ended. A front door keeps tens of
// MiB of objects and documents alive, which every collection walks through; at tens of thousands of requests a second that
// would be several times a second and a tenth of all time. It returns when ctx ends. It does nothing where the environment
// says how the collector is to work (GOGC, GOMEMLIMIT).
func Headroom(ctx context.Context, letGo func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	defer debug.SetGCPercent(ordinary)
	ticks := time.NewTicker(lookEvery)
	defer ticks.Stop()
	g := governor{room: min(room, memory()/quarter)}
	g.allocated, _, _ = heap()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		percent, over := g.look(heap())
		if percent != 0 {
			debug.SetGCPercent(percent)
		}
		if over {
			letGo()
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

// governor decides what GOGC is to be.
type governor struct {
	allocated uint64 // at the last look
	still     int    // looks at little
	roomy     bool
	last      int    // GOGC while roomy
	room      uint64 // bytes
}

// look says what to set GOGC to, 0 when it is to stay, and whether a load has just ended that left more behind than there
// would be without it. What leaves less, a large list now and then, is not worth a collection each time.
func (g *governor) look(allocated, held, live uint64) (percent int, over bool) {
	grown := allocated - g.allocated
	g.allocated = allocated
	switch {
	case grown >= much:
		g.roomy, g.still = true, 0
	case !g.roomy:
		return 0, false
	case grown >= little:
		g.still = max(0, g.still-lively)
	default:
		g.still++
	}
	if g.still >= calmAfter {
		*g = governor{allocated: allocated, room: g.room}
		return ordinary, held > live+live*ordinary/100
	}
	if percent = generous(live, g.room); percent == g.last {
		return 0, false
	}
	g.last = percent
	return percent, false
}

// generous is GOGC under load.
func generous(live, room uint64) int {
	if live == 0 {
		return ordinary
	}
	return int(max(ordinary, min(most, room*100/live)))
}
