package metrics

import (
	"maps"
	"sync"
	"sync/atomic"
)

// seriesCache caches series by label values. Prometheus' vectors need a lock and a lookup for each label. A lookup of an entry that
// has been used several times writes no memory, so that processors do not wait for each other.
type seriesCache[L comparable, S any] struct {
	// read is a copy of series. It is nil if there is none.
	read atomic.Pointer[map[L]S]

	mu     sync.Mutex // guards the fields below, and writes of read
	series map[L]S
	missed int // lookups whose entry was not in the copy, since it was made
}

// find returns an entry. When as many lookups have missed in the copy as there are entries, it makes a new one, so that copies take
// a constant time for each lookup.
func (c *seriesCache[L, S]) find(labels L) (found S, ok bool) {
	if read := c.read.Load(); read != nil {
		if found, ok = (*read)[labels]; ok {
			return found, true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if found, ok = c.series[labels]; !ok {
		return found, false
	}
	if c.missed++; c.missed >= len(c.series) {
		read := maps.Clone(c.series)
		c.read.Store(&read)
		c.missed = 0
	}
	return found, true
}

// set adds or replaces an entry.
func (c *seriesCache[L, S]) set(labels L, to S) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.series == nil {
		c.series = make(map[L]S)
	}
	if _, replaced := c.series[labels]; replaced {
		c.read.Store(nil)
	}
	c.series[labels] = to
}
