package resident

import (
	"context"
	"runtime/debug"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheCollectorHasRoomUnderLoad(t *testing.T) {
	const mib = 1 << 20
	type look struct {
		cycles, live uint64
		percent      int
		calm         bool
	}
	for name, looks := range map[string][]look{
		"one collection is no load": {{1, 50 * mib, 0, false}, {1, 50 * mib, 0, false}},
		"nor is one now and then": {
			{1, 20 * mib, 0, false}, {1, 0, 0, false}, {1, 0, 0, false}, {2, 20 * mib, 0, false},
		},
		"two in a second are":    {{0, 0, 0, false}, {2, 250 * mib, 204, false}},
		"two in two seconds are": {{1, 20 * mib, 0, false}, {1, 0, 0, false}, {2, 20 * mib, most, false}},
		"and two ten seconds apart, where much is alive": slices.Concat(
			[]look{{1, 200 * mib, 0, false}}, slices.Repeat([]look{{1, 0, 0, false}}, 10), []look{{2, 200 * mib, least, false}},
		),
		"little is alive":        {{0, 0, 0, false}, {2, mib, most, false}},
		"forty times as much is": {{0, 0, 0, false}, {2, 40 * mib, most, false}},
		"eighty times as much":   {{0, 0, 0, false}, {2, 80 * mib, 240, false}},
		"very much is alive":     {{0, 0, 0, false}, {2, 9600 * mib, ordinary, false}},
		"nothing is known":       {{0, 0, 0, false}, {2, 0, ordinary, false}},
		"the load ends": slices.Concat(
			[]look{{0, 0, 0, false}, {2, 20 * mib, most, false}, {2, 0, 0, false}, {2, 0, 0, false}, {3, 30 * mib, most, false}},
			slices.Repeat([]look{{3, 0, 0, false}}, calmAfter-1),
			[]look{{3, 0, ordinary, true}, {4, 20 * mib, 0, false}, {4, 0, 0, false}},
		),
		"and later where much is alive": slices.Concat(
			[]look{{0, 0, 0, false}, {2, 200 * mib, least, false}}, slices.Repeat([]look{{2, 0, 0, false}}, 11*least/ordinary),
			[]look{{2, 0, ordinary, true}},
		),
	} {
		t.Run(name, func(t *testing.T) {
			g := governor{still: longest + 1, room: room}
			for i, l := range looks {
				if percent, calm := g.look(l.cycles, l.live); percent != l.percent || calm != l.calm {
					t.Fatalf("look %d: %d, calm %v; want %d, %v", i, percent, calm, l.percent, l.calm)
				}
			}
		})
	}
}

func TestTheEnvironmentHasTheLastWord(t *testing.T) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		t.Setenv(name, "off")
		Headroom(t.Context()) // returns at once, or the test hangs
		t.Setenv(name, "")
	}
	before := debug.SetGCPercent(173)
	defer debug.SetGCPercent(before)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			Headroom(ctx)
		}()
		time.Sleep(3 * lookEvery) // of the bubble's time
		cancel()
		<-done
	})
	if after := debug.SetGCPercent(before); after != ordinary {
		t.Errorf("GOGC is %d afterwards", after)
	}
}
