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

func TestGCPercentFollowsLiveHeapAndAllocationRate(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		live, rate, most uint64 // MiB
		percent          int
	}{
		"nothing is known of what is alive":          {0, 100, 256, defaultGOGC},
		"idle, and little is alive":                  {40, 1, 256, 40},
		"idle, and more is alive":                    {400, 1, 256, minGOGC},
		"idle, and next to nothing is alive":         {2, 1, 256, maxGOGC},
		"as much as Go's own would do for":           {100, 20, 256, defaultGOGC},
		"more than that":                             {80, 50, 256, 250},
		"however much is alive":                      {100, 50, 256, 250},
		"little is alive: three seconds":             {20, 10, 256, 150},
		"little is alive, and less memory":           {20, 10, 16, defaultGOGC},
		"a load":                                     {40, 500, 256, maxGOGC},
		"there is not so much room":                  {128, 500, 256, 200},
		"as much is alive as there is room for":      {256, 500, 256, defaultGOGC},
		"more is alive":                              {1000, 900, 256, defaultGOGC},
		"more is alive, and there is much memory":    {1000, 900, 6000, defaultGOGC},
		"there is much memory":                       {40, 900, 6000, maxGOGC},
		"the same for more":                          {80, 900, 6000, 320},
		"for even more":                              {100, 900, 6000, largeGOGC},
		"and for what is the most":                   {256, 900, 6000, 200},
		"there is some memory":                       {100, 900, 280, 280},
		"and half of it would do":                    {100, 30, 6000, 150},
		"more is alive, and half of it would do":     {1000, 10, 256, 50},
		"little memory":                              {40, 500, 64, 160},
		"less memory than the least room":            {40, 500, 4, defaultGOGC},
		"more is alive than the memory has room for": {400, 500, 64, defaultGOGC},
	} {
		if got := gogcFor(c.live*mib, float64(c.rate*mib), c.most*mib); got != c.percent {
			t.Errorf("%s: GOGC %d, want %d", name, got, c.percent)
		}
	}
}

func TestGCPercentFollowsLoad(t *testing.T) {
	const mib = 1 << 20
	type look struct {
		grown, live uint64
		percent     int
		over        bool
	}
	quiet := func(looks int, live uint64) []look { return slices.Repeat([]look{{mib, live, 0, false}}, looks) }
	for name, looks := range map[string][]look{
		"an idle process is set once": append([]look{{mib, 40 * mib, 40, false}}, quiet(100, 40*mib)...),
		"a load":                      {{200 * mib, 40 * mib, maxGOGC, false}, {200 * mib, 40 * mib, 0, false}},
		"what is alive changes":       {{200 * mib, 40 * mib, maxGOGC, false}, {200 * mib, 256 * mib, defaultGOGC, false}, {200 * mib, 257 * mib, 0, false}},
		"a load that pauses for a second keeps most of its room": {
			{40 * mib, 100 * mib, 200, false}, {mib, 100 * mib, 150, false}, {40 * mib, 100 * mib, 200, false},
		},
		"the load ends": {
			{40 * mib, 40 * mib, 300, false}, {mib, 40 * mib, 225, false}, {mib, 40 * mib, 168, false}, {mib, 40 * mib, 126, false}, {mib, 40 * mib, 94, false},
			{mib, 40 * mib, 71, false}, {mib, 40 * mib, 53, false}, {mib, 40 * mib, 40, false}, {mib, 40 * mib, 0, false}, {mib, 40 * mib, 0, false},
			{mib, 40 * mib, 0, false}, {mib, 40 * mib, 0, true}, {mib, 40 * mib, 0, false},
		},
		"a load after which little is left is not worth a collection": slices.Concat(
			[]look{{21 * mib, 100 * mib, 105, false}, {mib, 100 * mib, 78, false}, {mib, 100 * mib, 59, false}, {mib, 100 * mib, 44, false}, {mib, 100 * mib, 33, false}, {mib, 100 * mib, 25, false}},
			quiet(30, 100*mib),
		),
	} {
		t.Run(name, func(t *testing.T) {
			const began = 500 * mib
			g := tuner{allocated: began, most: mediumRoom}
			allocated := uint64(began)
			for i, l := range looks {
				allocated += l.grown
				held := l.live + allocated - began // no collection runs in between
				if percent, over := g.next(allocated, held, l.live); percent != l.percent || over != l.over {
					t.Fatalf("look %d: %d, over %v; want %d, %v", i, percent, over, l.percent, l.over)
				}
			}
		})
	}
}

func TestMemoryIsReleasedAfterLoad(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	alive := make([]byte, 2*minRoom)
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
		time.Sleep(interval / 2) // of the bubble's time, in which no other goroutine allocates much
		load = make([]byte, 4*loadRate)
		load = nil
		time.Sleep(5 * interval)
		synctest.Wait()
		if letGo.Load() != 0 {
			t.Errorf("memory was released %d times under load, want 0", letGo.Load())
		}
		time.Sleep(20 * interval)
		synctest.Wait()
		if n := letGo.Load(); n != 1 {
			t.Errorf("memory was released %d times after the load, want 1", n)
		}
		cancel()
		<-done
	})
	runtime.KeepAlive(alive)
}

var load []byte // escapes

func TestEnvironmentVariablesDisableTuning(t *testing.T) {
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
		t.Errorf("GOGC after the tuner ended = %d, want %d", after, defaultGOGC)
	}
}
