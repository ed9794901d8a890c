package run

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestPeriodicTaskNeverOverlaps(t *testing.T) {
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

func TestPauseEndsWithContext(t *testing.T) {
	for name, c := range map[string]struct {
		ends  time.Duration // of the context
		pause time.Duration
		want  bool
		took  time.Duration
	}{
		"to its end":                {ends: time.Hour, pause: time.Minute, want: true, took: time.Minute},
		"cut short":                 {ends: time.Second, pause: time.Minute, want: false, took: time.Second},
		"none at all":               {ends: time.Hour, pause: 0, want: true},
		"none, and nobody is alive": {ends: 0, pause: 0, want: false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.ends)
				defer cancel()
				began := time.Now()
				if got := Pause(ctx, c.pause); got != c.want || time.Since(began) != c.took {
					t.Errorf("got %t after %s, want %t after %s", got, time.Since(began), c.want, c.took)
				}
			})
		})
	}
}
