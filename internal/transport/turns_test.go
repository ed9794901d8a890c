package transport

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestA53BackendIsLimitedToItsShareOfTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(4, 2)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		wait := func(backend string) func() {
			t.Helper()
			release, err := turns.Wait(ctx, backend)
			if err != nil {
				t.Fatal(err)
			}
			return release
		}
		first := wait("slow")
		wait("slow")
		third := make(chan error, 1)
		go func() {
			_, err := turns.Wait(ctx, "slow")
			third <- err
		}()
		synctest.Wait()
		wait("a")
		last := wait("b") // not blocked by the third turn of the slow backend
		c := make(chan error, 1)
		go func() {
			_, err := turns.Wait(ctx, "c")
			c <- err
		}()
		synctest.Wait()
		if len(third) != 0 || len(c) != 0 {
			t.Errorf("%d turns of the slow backend and %d of another began, want 0", len(third), len(c))
		}
		last()
		if err := <-c; err != nil {
			t.Errorf("Wait for a free turn = %v, want no error", err)
		}
		if len(third) != 0 {
			t.Error("a third turn of the slow backend began, want two")
		}
		first()
		if err := <-third; err != nil {
			t.Errorf("Wait of the slow backend after a release = %v, want no error", err)
		}
		cancel()
		if _, err := turns.Wait(ctx, "slow"); !errors.Is(err, context.Canceled) {
			t.Errorf("Wait after the cancellation = %v, want %v", err, context.Canceled)
		}
	})
}
