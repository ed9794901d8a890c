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
	// most is GOGC under load where little is alive, and little how much may be allocated there between two collections.
	// least is GOGC where more is alive: each collection walks through all of it, so that its share of the time of a request
	// is then the same however much there is to remember.
	most, least = 400, 230
	little      = 192 << 20
	// room bounds how much may be allocated between two collections, unless that is less than what is alive, and quarter
	// the part of the memory that there is (memory) for it.
	room, quarter = 512 << 20, 4
	// lookEvery is how often the collector is looked at.
	lookEvery = time.Second
	// walk is how much collections may walk through from one look to the next before that is a load: those of a large heap
	// are seldom, and long. longest bounds how many looks may be between two of them.
	walk, longest = 20 << 20, 12
	// calmAfter is how many looks without a collection are the end of a load, where little is alive.
	calmAfter = 10
)

// Headroom trades memory for time while there is load, and gives the memory back afterwards. A front door keeps tens of MiB
// of objects and documents alive, which every collection walks through; at tens of thousands of requests a second that
// would be twice a second and a tenth of all time. Run returns when ctx ends. It does nothing where the environment says
// how the collector is to work (GOGC, GOMEMLIMIT).
func Headroom(ctx context.Context) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	defer debug.SetGCPercent(ordinary)
	ticks := time.NewTicker(lookEvery)
	defer ticks.Stop()
	g := governor{room: min(room, memory()/quarter)}
	g.cycles, _ = collector()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		percent, calm := g.look(collector())
		if percent != 0 {
			debug.SetGCPercent(percent)
		}
		if calm {
			debug.FreeOSMemory()
		}
	}
}

// collector is how many collections there were, and what the last one found alive.
func collector() (cycles, live uint64) {
	samples := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64()
}

// governor decides what GOGC is to be.
type governor struct {
	cycles uint64 // at the last look
	still  int    // looks since a collection
	apart  int    // looks between two collections that are a load
	roomy  bool
	last   int    // GOGC while roomy
	room   uint64 // bytes
}

// look says what to set GOGC to, 0 when it is to stay, and whether a load has just ended.
func (g *governor) look(cycles, live uint64) (percent int, calm bool) {
	ran := cycles - g.cycles
	g.cycles = cycles
	if ran > 0 {
		still := g.still
		g.still = 0
		g.apart = int(min(live/walk, longest))
		if !g.roomy && ran == 1 && still > g.apart { // one alone is no load
			return 0, false
		}
		g.roomy = true
		g.last = generous(live, g.room)
		return g.last, false
	}
	g.still++
	if !g.roomy || g.still < g.calm() {
		return 0, false
	}
	g.roomy = false
	return ordinary, true
}

// calm is how many looks without a collection are the end of a load. They are rarer than those that began it, since there is
// more room, and that must not be taken for its end.
func (g *governor) calm() int { return max(calmAfter, (g.apart+1)*g.last/ordinary+1) }

// generous is GOGC under load.
func generous(live, room uint64) int {
	if live == 0 {
		return ordinary
	}
	return int(max(ordinary, min(most, max(least, little*100/live), room*100/live)))
}
