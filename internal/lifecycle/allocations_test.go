package lifecycle

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// Claims are repaired at the start, once a minute, and as soon as a replica has ended while it wrote; by who leads alone.
func TestAllocationsAreRepairedWhenAReplicaEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards what follows
		var repairs int
		abandoned, leads, fault := false, true, error(nil)
		changed := make(chan struct{})
		r := &allocationRepair{
			repair: func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				repairs++
				abandoned = false
				return nil
			},
			abandoned: func(context.Context) (bool, error) {
				mu.Lock()
				defer mu.Unlock()
				return abandoned, fault
			},
			election: func() (bool, <-chan struct{}) {
				mu.Lock()
				defer mu.Unlock()
				return leads, changed
			},
			log: zap.NewNop(),
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.run(ctx) }()
		want := func(when string, n int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if repairs != n {
				t.Errorf("%s: repaired %d times, want %d", when, repairs, n)
			}
		}
		want("at the start", 1)
		time.Sleep(repairPause - abandonedPause) // in a bubble of synctest, as below
		want("before a minute is over", 1)
		mu.Lock()
		abandoned = true
		mu.Unlock()
		time.Sleep(abandonedPause)
		want("when a replica has ended", 2)
		time.Sleep(repairPause)
		want("a minute later", 3)
		mu.Lock()
		fault, abandoned = errors.New("etcdserver: no leader"), true
		mu.Unlock()
		time.Sleep(10 * abandonedPause)
		want("when nobody can tell", 3)
		mu.Lock()
		fault, leads = nil, false
		mu.Unlock()
		time.Sleep(5 * repairPause)
		want("when another leads", 3)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
