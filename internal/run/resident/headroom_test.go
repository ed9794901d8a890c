package resident

import (
	"context"
	"runtime/debug"
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
		"one collection is no load": {{1, 50 * mib, 0, false}, {1, 50 * mib, 0, false}, {2, 50 * mib, 0, false}},
		"two in a second are":       {{0, 0, 0, false}, {2, 48 * mib, 300, false}},
		"and one in each of two":    {{0, 0, 0, false}, {1, 96 * mib, 0, false}, {2, 96 * mib, 200, false}},
		"little is alive":           {{0, 0, 0, false}, {2, mib, most, false}},
		"much is alive":             {{0, 0, 0, false}, {2, 9600 * mib, 101, false}},
		"the load ends": {
			{0, 0, 0, false}, {2, 96 * mib, 200, false}, {2, 96 * mib, 0, false}, {2, 96 * mib, 0, false}, {3, 192 * mib, 150, false},
			{3, 0, 0, false}, {3, 0, 0, false}, {3, 0, 0, false}, {3, 0, 0, false}, {3, 0, 0, false}, {3, 0, 0, false}, {3, 0, 0, false},
			{3, 0, 0, false}, {3, 0, 0, false}, {3, 0, ordinary, true}, {4, 96 * mib, 0, false}, {4, 96 * mib, 0, false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := governor{still: 1}
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
