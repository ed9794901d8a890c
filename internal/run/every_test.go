package run

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestEveryIntervalAndNeverTwiceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var at []time.Duration
		err := Every(ctx, time.Second, func(context.Context) {
			at = append(at, time.Since(began))
			switch len(at) {
			case 2:
				time.Sleep(2500 * time.Millisecond) // two and a half intervals
			case 4:
				cancel()
			}
		})
		want := []time.Duration{0, time.Second, 3500 * time.Millisecond, 4 * time.Second}
		if err != nil || !slices.Equal(at, want) {
			t.Errorf("done at %v, want %v; error %v", at, want, err)
		}
	})
}
