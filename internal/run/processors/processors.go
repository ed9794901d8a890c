// Package processors limits a process to one processor while one is sufficient.
//
// Go wakes another thread whenever a goroutine becomes runnable while a processor is idle. In a proxy below full load this
// happens most of the time: each request is a chain of short steps in several goroutines (read, forward, read, respond), each
// step wakes a thread on another processor, and that thread searches for more work before it sleeps again. These wakeups cost
// more than the steps. With one processor they do not occur, and with only as many processors as the load needs they are rare.
package processors

import (
	"context"
	"os"
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// interval is the interval between checks of the processor usage. A burst waits at most this long for another processor.
	interval = 50 * time.Millisecond
	// restInterval is the interval while Asked is not called and less than restBelow of one processor is used. In an idle
	// process, more frequent checks would be the main cause of wakeups.
	restInterval = time.Second
	restBelow    = 0.2
	// growAt is the fraction of its processors that a process uses before it gets more. shrinkAt is the maximum fraction of
	// fewer processors that it may use to be reduced to them. With fewer processors it has fewer wakeups and uses less CPU, so
	// that it does not oscillate.
	growAt, shrinkAt = 0.85, 0.7
	// calm is the number of consecutive intervals in which fewer processors must have sufficed: half a second.
	calm = 10
)

// Adapt adjusts the number of processors of Go's scheduler (GOMAXPROCS) to the load, from one to all available ones, until ctx
// ends. It does nothing if the environment sets GOMAXPROCS, or if the CPU time cannot be read.
func Adapt(ctx context.Context) { adapt(ctx, used) }

// adapt is Adapt with a function that returns the CPU time of the process.
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

// setProcessors sets GOMAXPROCS and returns it. If all is true, it uses the current limit of the machine and the control group,
// which may have changed.
func setProcessors(n int, all bool) int {
	if all {
		runtime.SetDefaultGOMAXPROCS()
	} else {
		runtime.GOMAXPROCS(n)
	}
	return runtime.GOMAXPROCS(0)
}

// current is the running Adapt, or nil, because GOMAXPROCS applies to the process.
var current atomic.Pointer[adapter]

// NoteWork must be called for each event that causes work: each request and each part of a response. Adapt then does not rest. In
// most cases it costs two reads of memory that is rarely written.
func NoteWork() {
	if a := current.Load(); a != nil {
		a.noteAsked()
	}
}

// adapter is the state of one Adapt call.
type adapter struct {
	used func() (time.Duration, bool)
	set  func(n int, all bool) int

	asked   atomic.Bool   // since the last check
	resting atomic.Bool   // the next check is restInterval away
	wake    chan struct{} // contains an element when the rest is over
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

// mayRest starts a rest unless noteAsked is called concurrently. noteAsked writes asked before it reads resting, and mayRest
// writes resting before it reads asked, so that at least one of them observes the other.
func (a *adapter) mayRest() bool {
	a.resting.Store(true)
	if a.asked.Load() {
		a.resting.Store(false)
		return false
	}
	return true
}

// run adapts the number of processors, starting with most, until ctx ends.
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

// decider decides the number of processors.
type decider struct {
	most, now int
	calm      int // consecutive intervals in which fewer processors would have sufficed
}

// next returns the number of processors after an interval with an average of busy processors.
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
