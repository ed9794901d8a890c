// Package ttlcache is an LRU cache whose entries have deadlines of their own. It is a package of its own because
// extension providers use it, which must not link the authentication of the front door.
//
// The expirable cache of golang-lru would do, were it not for the goroutine that each one starts and nothing can stop;
// here an entry's deadline is checked when it is read, and the LRU bound takes care of the rest.
package ttlcache

import (
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Cache holds at most a fixed number of values, each until its own deadline. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	entries *lru.Cache[K, entry[V]]
	now     func() time.Time
}

type entry[V any] struct {
	value V
	until time.Time
}

// New returns a Cache of at most size values; size must be positive.
func New[K comparable, V any](size int) *Cache[K, V] { return NewWithClock[K, V](size, time.Now) }

// NewWithClock is New with the clock by which deadlines pass.
func NewWithClock[K comparable, V any](size int, now func() time.Time) *Cache[K, V] {
	entries, err := lru.New[K, entry[V]](size)
	if err != nil {
		panic(err) // only a size below one, which is a mistake of the caller
	}
	return &Cache[K, V]{entries: entries, now: now}
}

// Get returns the value for k unless its deadline has passed.
func (c *Cache[K, V]) Get(k K) (V, bool) {
	e, ok := c.entries.Get(k)
	if !ok {
		var zero V
		return zero, false
	}
	if !c.now().Before(e.until) {
		c.entries.Remove(k)
		var zero V
		return zero, false
	}
	return e.value, true
}

// Add stores v for k until a moment, replacing what was there.
func (c *Cache[K, V]) Add(k K, v V, until time.Time) {
	c.entries.Add(k, entry[V]{value: v, until: until})
}
