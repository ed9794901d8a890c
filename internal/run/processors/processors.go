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
	"sync/atomic"
	"time"
)

const (
	// interval is how often the use is looked at. A burst waits for another processor that long at most.
	interval = 50 * time.Millisecond
	// restInterval is the same while nothing is asked (Asked) and less than restBelow of one processor is used. A process that
	// does nothing would be woken by these looks more often than by all else.
	restInterval = time.Second
	restBelow    = 0.2
	// growAt is the part of its processors that a process uses before it gets more, and shrinkAt the part of fewer processors
	// that it may use to be left with these. With fewer it uses less, since wake-ups are saved, so that it does not go to and fro.
	growAt, shrinkAt = 0.85, 0.7
	// calm is for how many intervals in a row fewer must have been enough: half a second.
	calm = 10
)

// Adapt sets how many processors Go's scheduler uses (GOMAXPROCS) to what the process needs, from one to as many as there are, until ctx ends. It
// does nothing where the environment sets GOMAXPROCS, or where the use of processors cannot be read.
func Adapt(ctx context.Context) { adapt(ctx, used) }

// adapt is Adapt with what returns the CPU time of the process.
func adapt(ctx context.Context, used func() (time.Duration, bool)) {
	if os.Getenv("GOMAXPROCS") != "" {
		return
	}
	if _, ok := used(); !ok {
		return
	}
	defer runtime.SetDefaultGOMAXPROCS()
	a := newAdapter(used, setProcessors)
	current.Store(a)
	defer current.CompareAndSwap(a, nil)
	a.run(ctx, runtime.GOMAXPROCS(0))
}

// setProcessors sets GOMAXPROCS, and returns it. With all it is what the machine and the control group allow: the limit of the group may
// be another one by now.
func setProcessors(n int, all bool) int {
	if all {
		runtime.SetDefaultGOMAXPROCS()
	} else {
		runtime.GOMAXPROCS(n)
	}
	return runtime.GOMAXPROCS(0)
}

// current is the Adapt that runs, nil when none does: GOMAXPROCS is of the process.
var current atomic.Pointer[adapter]

// Asked is called whenever something is asked of the process, or told by it: for each request and each part of a response. Adapt does not
// rest then. Nearly always it costs two reads of memory that is rarely written.
func Asked() {
	if a := current.Load(); a != nil {
		a.noteAsked()
	}
}

// adapter is a run of Adapt.
type adapter struct {
	used func() (time.Duration, bool)
	set  func(n int, all bool) int

	asked   atomic.Bool   // since the last look
	resting atomic.Bool   // the next look is far away
	wake    chan struct{} // has an entry when the rest is over
}

func newAdapter(used func() (time.Duration, bool), set func(n int, all bool) int) *adapter {
	return &adapter{used: used, set: set, wake: make(chan struct{}, 1)}
}

func (a *adapter) noteAsked() {
	if a.asked.Load() {
		return
	}
	a.asked.Store(true)
	if a.resting.Load() && a.resting.CompareAndSwap(true, false) {
		select {
		case a.wake <- struct{}{}:
		default: // it is about to wake up
		}
	}
}

// mayRest begins a rest unless something is asked just now. noteAsked writes asked before it reads resting, and mayRest the other
// way round: one of them sees the other.
func (a *adapter) mayRest() bool {
	a.resting.Store(true)
	if a.asked.Load() {
		a.resting.Store(false)
		return false
	}
	return true
}

// run adapts, beginning with most processors, until ctx ends.
func (a *adapter) run(ctx context.Context, most int) {
	d := decider{most: most, now: most}
	last, _ := a.used()
	at := time.Now()
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
			last, _ = a.used()
			at = time.Now()
			timer.Reset(interval)
			continue
		case <-timer.C:
		}
		is, _ := a.used()
		now := time.Now()
		was, busy := d.now, (is-last).Seconds()/now.Sub(at).Seconds()
		if next := d.next(busy); next != was {
			d.now = a.set(next, next == d.most)
			if next == d.most {
				d.most = d.now
			}
		}
		last, at = is, now
		a.resting.Store(false)
		if asked := a.asked.Swap(false); !asked && d.now == 1 && busy < restBelow && a.mayRest() {
			timer.Reset(restInterval)
		} else {
			timer.Reset(interval)
		}
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
