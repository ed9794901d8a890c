package coreapi

import (
	"testing"
	"testing/synctest"
	"time"
)

// Timers for bookmarks fire together, and none of them later or earlier than by half the interval.
func TestTimersOfCachesFireTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCacheClock()
		time.Sleep(123 * time.Millisecond) // in the bubble
		for _, d := range []time.Duration{time.Second, 1100 * time.Millisecond, 1249 * time.Millisecond, 15 * time.Second} {
			timer := c.NewTimer(d)
			for range 3 {
				began := time.Now()
				<-timer.C()
				took := time.Since(began)
				if off := (took - d).Abs(); off > together/2 {
					t.Errorf("a timer of %s fired after %s, want a difference of at most %s", d, took, together/2)
				}
				if since := time.Since(c.began); since%together != 0 {
					t.Errorf("a timer of %s fired %s after the start of the clock, want a multiple of %s", d, since, together)
				}
				timer.Reset(d)
			}
			timer.Stop()
		}
		began := time.Now()
		<-c.NewTimer(100 * time.Millisecond).C()
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Errorf("a timer of 100 ms fired after %s: short timers are not moved", took)
		}
	})
}
