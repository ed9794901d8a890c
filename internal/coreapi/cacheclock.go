package coreapi

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// cacheClock is the clock of watch caches. A consistent read leaves a goroutine that waits for After to end three seconds
// later, even if the cache is gone by then. cacheClock also ends After when the caches stop, so that no goroutine outlives the
// server.
type cacheClock struct {
	clock.RealClock

	mu      sync.Mutex // guards stopped and waiting
	stopped bool
	waiting map[*time.Timer]chan time.Time
}

func newCacheClock() *cacheClock { return &cacheClock{waiting: map[*time.Timer]chan time.Time{}} }

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
