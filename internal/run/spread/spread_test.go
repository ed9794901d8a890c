package spread

import (
	"sync"
	"testing"
	"testing/synctest"
)

func TestCallsEveryRegisteredFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, end := New()
		var mu sync.Mutex
		called := map[int]error{}
		for i := range 100 {
			stop := c.AfterFunc(func() {
				mu.Lock()
				defer mu.Unlock()
				called[i] = c.Err()
			})
			if i%10 == 0 && !stop() {
				t.Error("stop before the end = false, want true")
			}
		}
		synctest.Wait()
		if len(called) != 0 || c.Err() != nil {
			t.Fatalf("before the end, %d functions were called and Err() = %v, want 0 and nil", len(called), c.Err())
		}
		end()
		synctest.Wait()
		if len(called) != 90 {
			t.Errorf("%d functions were called, want the 90 that were not removed", len(called))
		}
		for i, err := range called {
			if err == nil {
				t.Errorf("when function %d was called, Err() = nil", i)
			}
		}
	})
}
