package httpmsg

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
)

// Whoever finds the end finds the reason: package context panics otherwise, and takes the process with it.
func TestAContextThatHasEndedHasAnError(t *testing.T) {
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
				runtime.Gosched() // there may be one processor
			}
			found <- l.Err()
		}()
		for !looking.Load() {
			runtime.Gosched()
		}
		l.End()
		if err := <-found; err != context.Canceled {
			t.Fatalf("a context that is done has the error %v", err)
		}
	}
}
