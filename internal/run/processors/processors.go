// Package processors lets a process use one processor while one is enough for what it does.
//
// Go wakes another thread whenever a goroutine becomes runnable while a processor is idle. For a proxy that is most of the time at less than full
// load: each request is a chain of short steps in several goroutines (read, forward, read, answer), each step wakes a thread on another processor,
// and that thread looks for more work before it sleeps again. These wake-ups cost more than the steps. With one processor there are none, and
// with as many as the load needs there are few.
package processors

import (
	"context"
	"os"
	"runtime"
	"time"
)

const (
	// interval is how often the use is looked at. A burst waits for another processor that long at most.
	interval = 50 * time.Millisecond
	// growAt is the part of its processors that a process uses before it gets more, and shrinkAt the part of fewer processors
	// that it may use to be left with these. With fewer it uses less, since wake-ups are saved, so that it does not go to and fro.
	growAt, shrinkAt = 0.85, 0.7
	// calm is for how many intervals in a row fewer must have been enough: half a second.
	calm = 10
)

// Adapt sets how many processors Go's scheduler uses (GOMAXPROCS) to what the process needs, from one to as many as there are, until ctx ends. It
// does nothing where the environment sets GOMAXPROCS, or where the use of processors cannot be read.
func Adapt(ctx context.Context) {
	if os.Getenv("GOMAXPROCS") != "" {
		return
	}
	last, ok := used()
	if !ok {
		return
	}
	most := runtime.GOMAXPROCS(0)
	d := decider{most: most, now: most}
	defer runtime.SetDefaultGOMAXPROCS()
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	at := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		is, _ := used()
		now := time.Now()
		was := d.now
		if next := d.next((is - last).Seconds() / now.Sub(at).Seconds()); next == d.most && next != was {
			runtime.SetDefaultGOMAXPROCS() // the limit of the control group may be another one by now
			d.most = runtime.GOMAXPROCS(0)
			d.now = d.most
		} else if next != was {
			runtime.GOMAXPROCS(next)
		}
		last, at = is, now
	}
}

// decider decides how many processors are used.
type decider struct {
	most, now int
	calm      int // intervals in a row in which fewer would have been enough
}

// next is how many processors to use after an interval in which so many were busy on average.
func (d *decider) next(busy float64) int {
	fewer := d.now / 2
	switch {
	case busy > growAt*float64(d.now):
		d.now, d.calm = min(d.most, 2*d.now), 0
	case fewer == 0 || busy > shrinkAt*float64(fewer):
		d.calm = 0
	default:
		if d.calm++; d.calm >= calm {
			d.now, d.calm = fewer, 0
		}
	}
	return d.now
}
