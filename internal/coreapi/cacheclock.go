package coreapi

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// cacheClock is the clock of watch caches. A consistent read leaves a goroutine that waits for After to end three seconds
// later, even if the cache is gone by then. cacheClock also ends After when the caches stop, so that no goroutine outlives the
// server.
//
// Each cache has a timer of about a second, for bookmarks. Timers of several caches fire together, so that an idle server wakes less
// often.
type cacheClock struct {
	clock.RealClock
	began time.Time

	mu      sync.Mutex // guards stopped and waiting
	stopped bool
	waiting map[*time.Timer]chan time.Time
}

func newCacheClock() *cacheClock {
	return &cacheClock{began: time.Now(), waiting: map[*time.Timer]chan time.Time{}}
}

// together is the interval between the times at which timers of a second and more fire. With thousands of caches, all timers of a
// second would be one long burst.
const together = 250 * time.Millisecond

// align returns the time to the multiple of together that is nearest to d from now.
func (c *cacheClock) align(d time.Duration) time.Duration {
	if d < time.Second {
		return d
	}
	now := time.Since(c.began)
	return (now + d).Round(together) - now
}

// NewTimer returns a timer that fires together with others.
func (c *cacheClock) NewTimer(d time.Duration) clock.Timer {
	return &alignedTimer{c.RealClock.NewTimer(c.align(d)), c}
}

type alignedTimer struct {
	clock.Timer
	clock *cacheClock
}

// Reset implements clock.Timer.
func (t *alignedTimer) Reset(d time.Duration) bool { return t.Timer.Reset(t.clock.align(d)) }

// After returns a channel that receives the time after d, or when the clock stops.
func (c *cacheClock) After(d time.Duration) <-chan time.Time {
	fired := make(chan time.Time, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		fired <- time.Now()
		return fired
	}
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if _, waits := c.waiting[timer]; waits {
			delete(c.waiting, timer)
			fired <- time.Now()
		}
	})
	c.waiting[timer] = fired
	return fired
}

// stop ends every After.
func (c *cacheClock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	for timer, fired := range c.waiting {
		timer.Stop()
		fired <- time.Now()
	}
	clear(c.waiting)
}
