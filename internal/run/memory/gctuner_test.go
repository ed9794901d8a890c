package memory

import (
	"context"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheCollectorHasHeadroomUnderLoad(t *testing.T) {
	const mib = 1 << 20
	type look struct {
		grown, live uint64
		percent     int
		over        bool
	}
	quiet := func(looks int, live uint64) []look { return slices.Repeat([]look{{mib, live, 0, false}}, looks) }
	for name, looks := range map[string][]look{
		"what an idle process allocates is no load": quiet(100, 50*mib),
		"nor is a little more, for long":            slices.Repeat([]look{{loadBytes - 1, 50 * mib, 0, false}}, 100),
		"a second of load is":                       {{loadBytes, 20 * mib, maxGOGC, false}},
		"nothing is known of what is alive":         {{loadBytes, 0, defaultGOGC, false}, {loadBytes, 20 * mib, maxGOGC, false}},
		"as much is alive as there is room for":     {{loadBytes, 128 * mib, maxGOGC, false}},
		"more is alive":                             {{loadBytes, 160 * mib, 320, false}},
		"very much is alive":                        {{loadBytes, 9600 * mib, defaultGOGC, false}},
		"what is alive changes under load":          {{loadBytes, 20 * mib, maxGOGC, false}, {loadBytes, 256 * mib, 200, false}, {loadBytes, 256 * mib, 0, false}},
		"the load ends": slices.Concat(
			[]look{{loadBytes, 20 * mib, maxGOGC, false}}, quiet(idleIntervals-1, 20*mib), []look{{mib, 20 * mib, defaultGOGC, true}}, quiet(10, 20*mib),
		),
		"and comes again": slices.Concat(
			[]look{{loadBytes, 20 * mib, maxGOGC, false}}, quiet(idleIntervals-1, 20*mib), []look{{mib, 20 * mib, defaultGOGC, true}, {loadBytes, 20 * mib, maxGOGC, false}},
		),
		"a load with pauses is one": slices.Concat(
			[]look{{loadBytes, 20 * mib, maxGOGC, false}}, quiet(idleIntervals-1, 20*mib), []look{{loadBytes, 20 * mib, 0, false}}, quiet(idleIntervals-1, 20*mib),
			[]look{{mib, 20 * mib, defaultGOGC, true}},
		),
		"a large list leaves too little for a collection": slices.Concat(
			[]look{{loadBytes, 50 * mib, maxGOGC, false}}, quiet(idleIntervals-1, 50*mib), []look{{mib, 50 * mib, defaultGOGC, false}},
		),
		"a large list now and then does not keep it up": slices.Concat(
			[]look{{loadBytes, 50 * mib, maxGOGC, false}}, quiet(9, 50*mib), []look{{idleBytes, 50 * mib, 0, false}}, quiet(idleIntervals-9+busyIntervals-1, 50*mib),
			[]look{{mib, 50 * mib, defaultGOGC, false}},
		),
		"a load that becomes less is still one": slices.Concat(
			[]look{{loadBytes, 20 * mib, maxGOGC, false}}, slices.Repeat([]look{{idleBytes, 20 * mib, 0, false}}, 100),
		),
	} {
		t.Run(name, func(t *testing.T) {
			const began = 500 * mib
			g := tuner{allocated: began, headroom: maxHeadroom}
			allocated := uint64(began)
			for i, l := range looks {
				allocated += l.grown
				held := l.live + allocated - began // nothing is collected meanwhile
				if percent, over := g.next(allocated, held, l.live); percent != l.percent || over != l.over {
					t.Fatalf("look %d: %d, over %v; want %d, %v", i, percent, over, l.percent, l.over)
				}
			}
		})
	}
}

func TestMemoryIsLetGoAfterALoad(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	alive := make([]byte, 3*loadBytes/2)
	runtime.GC()
	before := debug.SetGCPercent(-1) // until there is room
	defer debug.SetGCPercent(before)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		var letGo atomic.Int32
		go func() {
			defer close(done)
			TuneGC(ctx, func() { letGo.Add(1) })
		}()
		time.Sleep(interval / 2) // of the bubble's time, in which nobody else allocates much
		load = make([]byte, 2*loadBytes)
		load = nil
		time.Sleep(idleIntervals * interval)
		synctest.Wait()
		if letGo.Load() != 0 {
			t.Error("memory is let go under load")
		}
		time.Sleep(2 * interval)
		synctest.Wait()
		if n := letGo.Load(); n != 1 {
			t.Errorf("memory was let go %d times after the load", n)
		}
		cancel()
		<-done
	})
	runtime.KeepAlive(alive)
}

var load []byte // escapes

func TestTheEnvironmentHasTheLastWord(t *testing.T) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		t.Setenv(name, "off")
		TuneGC(t.Context(), nil) // returns at once, or the test hangs
		t.Setenv(name, "")
	}
	before := debug.SetGCPercent(173)
	defer debug.SetGCPercent(before)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			TuneGC(ctx, nil)
		}()
		time.Sleep(3 * interval) // of the bubble's time
		cancel()
		<-done
	})
	if after := debug.SetGCPercent(before); after != defaultGOGC {
		t.Errorf("GOGC is %d afterwards", after)
	}
}
