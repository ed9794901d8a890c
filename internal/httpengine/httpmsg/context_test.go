package httpmsg

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
)

// A caller that observes Done must get an error from Err. Otherwise package context panics and ends the process.
func TestEndedContextHasError(t *testing.T) {
	for range 20_000 {
		l := &Context{}
		var looking atomic.Bool
		found := make(chan error)
		go func() {
			done := l.Done()
			ended := func() bool {
				select {
				case <-done:
					return true
				default:
					return false
				}
			}
			looking.Store(true)
			for !ended() {
				runtime.Gosched() // There may be only one processor.
			}
			found <- l.Err()
		}()
		for !looking.Load() {
			runtime.Gosched()
		}
		l.End()
		if err := <-found; err != context.Canceled {
			t.Fatalf("Err of an ended context = %v, want context.Canceled", err)
		}
	}
}
