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
	// room is how much more than that the heap may grow between two collections under load.
	room = 96 << 20
	// most bounds GOGC where little is alive.
	most = 400
	// lookEvery is how often the collector is looked at.
	lookEvery = time.Second
	// calmAfter is how many looks without a collection are the end of a load.
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
	var g governor
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
	roomy  bool
}

// look says what to set GOGC to, 0 when it is to stay, and whether a load has just ended.
func (g *governor) look(cycles, live uint64) (percent int, calm bool) {
	ran := cycles - g.cycles
	g.cycles = cycles
	if ran > 0 {
		still := g.still
		g.still = 0
		if !g.roomy && ran == 1 && still > 0 { // one alone is no load
			return 0, false
		}
		g.roomy = true
		return generous(live), false
	}
	g.still++
	if !g.roomy || g.still < calmAfter {
		return 0, false
	}
	g.roomy = false
	return ordinary, true
}

func generous(live uint64) int {
	if live == 0 {
		return ordinary
	}
	return int(min(most, ordinary+room*100/live))
}
