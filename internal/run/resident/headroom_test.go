package resident

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

func TestTheCollectorHasRoomUnderLoad(t *testing.T) {
	const mib = 1 << 20
	type look struct {
		grown, live uint64
		percent     int
		over        bool
	}
	quiet := func(looks int, live uint64) []look { return slices.Repeat([]look{{mib, live, 0, false}}, looks) }
	for name, looks := range map[string][]look{
		"what an idle house allocates is no load": quiet(100, 50*mib),
		"nor is a little more, for long":          slices.Repeat([]look{{much - 1, 50 * mib, 0, false}}, 100),
		"a second of load is":                     {{much, 20 * mib, most, false}},
		"nothing is known of what is alive":       {{much, 0, ordinary, false}, {much, 20 * mib, most, false}},
		"as much is alive as there is room for":   {{much, 128 * mib, most, false}},
		"more is alive":                           {{much, 160 * mib, 320, false}},
		"very much is alive":                      {{much, 9600 * mib, ordinary, false}},
		"what is alive changes under load":        {{much, 20 * mib, most, false}, {much, 256 * mib, 200, false}, {much, 256 * mib, 0, false}},
		"the load ends": slices.Concat(
			[]look{{much, 20 * mib, most, false}}, quiet(calmAfter-1, 20*mib), []look{{mib, 20 * mib, ordinary, true}}, quiet(10, 20*mib),
		),
		"and comes again": slices.Concat(
			[]look{{much, 20 * mib, most, false}}, quiet(calmAfter-1, 20*mib), []look{{mib, 20 * mib, ordinary, true}, {much, 20 * mib, most, false}},
		),
		"a load with pauses is one": slices.Concat(
			[]look{{much, 20 * mib, most, false}}, quiet(calmAfter-1, 20*mib), []look{{much, 20 * mib, 0, false}}, quiet(calmAfter-1, 20*mib),
			[]look{{mib, 20 * mib, ordinary, true}},
		),
		"a large list leaves too little for a collection": slices.Concat(
			[]look{{much, 50 * mib, most, false}}, quiet(calmAfter-1, 50*mib), []look{{mib, 50 * mib, ordinary, false}},
		),
		"a large list now and then does not keep it up": slices.Concat(
			[]look{{much, 50 * mib, most, false}}, quiet(9, 50*mib), []look{{little, 50 * mib, 0, false}}, quiet(calmAfter-9+lively-1, 50*mib),
			[]look{{mib, 50 * mib, ordinary, false}},
		),
		"a load that becomes less is still one": slices.Concat(
			[]look{{much, 20 * mib, most, false}}, slices.Repeat([]look{{little, 20 * mib, 0, false}}, 100),
		),
	} {
		t.Run(name, func(t *testing.T) {
			const began = 500 * mib
			g := governor{allocated: began, room: room}
			allocated := uint64(began)
			for i, l := range looks {
				allocated += l.grown
				held := l.live + allocated - began // nothing is collected meanwhile
				if percent, over := g.look(allocated, held, l.live); percent != l.percent || over != l.over {
					t.Fatalf("look %d: %d, over %v; want %d, %v", i, percent, over, l.percent, l.over)
				}
			}
		})
	}
}

func TestMemoryIsLetGoAfterALoad(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	alive := make([]byte, 3*much/2)
	runtime.GC()
	before := debug.SetGCPercent(-1) // until there is room
	defer debug.SetGCPercent(before)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		var letGo atomic.Int32
		go func() {
			defer close(done)
			Headroom(ctx, func() { letGo.Add(1) })
		}()
		time.Sleep(lookEvery / 2) // of the bubble's time, in which nobody else allocates much
		load = make([]byte, 2*much)
		load = nil
		time.Sleep(calmAfter * lookEvery)
		synctest.Wait()
		if letGo.Load() != 0 {
			t.Error("memory is let go under load")
		}
		time.Sleep(2 * lookEvery)
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
		Headroom(t.Context(), nil) // returns at once, or the test hangs
		t.Setenv(name, "")
	}
	before := debug.SetGCPercent(173)
	defer debug.SetGCPercent(before)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			Headroom(ctx, nil)
		}()
		time.Sleep(3 * lookEvery) // of the bubble's time
		cancel()
		<-done
	})
	if after := debug.SetGCPercent(before); after != ordinary {
		t.Errorf("GOGC is %d afterwards", after)
	}
}
