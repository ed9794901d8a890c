// Package ttlcache implements an LRU cache with a deadline per entry. It is a separate package because extension
// providers use it, and they must not link the front door's authentication.
//
// golang-lru's expirable cache starts a goroutine that cannot be stopped. This cache checks deadlines on reads and
// relies on the LRU limit for removal.
package ttlcache

import (
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Cache stores a limited number of values, each with its own deadline. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	entries *lru.Cache[K, entry[V]]
	now     func() time.Time
}

type entry[V any] struct {
	value V
	until time.Time
}

// New returns a Cache for up to size values. size must be positive.
func New[K comparable, V any](size int) *Cache[K, V] { return NewWithClock[K, V](size, time.Now) }

// NewWithClock is like New with a custom clock for the deadlines.
func NewWithClock[K comparable, V any](size int, now func() time.Time) *Cache[K, V] {
	entries, err := lru.New[K, entry[V]](size)
	if err != nil {
		panic(err) // only for a size below one, a bug of the caller
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

// Add stores v for k until the deadline, replacing a previous value.
func (c *Cache[K, V]) Add(k K, v V, until time.Time) {
	c.entries.Add(k, entry[V]{value: v, until: until})
}
