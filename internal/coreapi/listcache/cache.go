package listcache

import (
	"context"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"portico.dev/internal/run"
)

const (
	// maxBytes limits the cache: it holds the encodings of 50,000 objects of 1 KB. If the process has a memory limit, the cache
	// is also limited to a sixteenth of it.
	maxBytes, limitShare = 64 << 20, 16
	// sweepInterval is the interval of sweeps, which drop encodings that no list has used since the previous sweep.
	sweepInterval = 20 * time.Second
	// entryOverhead is the memory of an encoding in addition to its bytes: the entry, its slot in the map, and the managed
	// fields that it keeps.
	entryOverhead = 256
)

// Cache contains the encodings of recently listed objects. Its size is limited. An encoding that does not fit is not stored,
// and no other one is evicted for it: lists read all objects in turn, so the evicted ones would be the first that the next list
// needs.
type Cache struct {
	limit atomic.Int64
	bytes atomic.Int64 // of all entries
	sweep atomic.Int64 // number of the current sweep

	buffers buffers

	mu     sync.Mutex
	tables map[tableKey]*table
}

// New returns an empty cache. Run drops unused encodings.
func New() *Cache {
	c := &Cache{tables: map[tableKey]*table{}, buffers: newBuffers()}
	c.bound()
	return c
}

// bound applies the memory limit of the process, which may have been set after startup.
func (c *Cache) bound() {
	limit := int64(maxBytes)
	if memory := debug.SetMemoryLimit(-1); memory != math.MaxInt64 {
		limit = min(limit, memory/limitShare)
	}
	c.limit.Store(limit)
}

// Bytes returns the size of the cache in bytes.
func (c *Cache) Bytes() int64 { return c.bytes.Load() }

// Run drops unused encodings until ctx ends.
func (c *Cache) Run(ctx context.Context) {
	_ = run.Every(ctx, sweepInterval, func(context.Context) { // never returns an error
		c.bound()
		c.drop()
	})
}

// tableKey distinguishes encodings of the same object.
type tableKey struct {
	storage any
	form    form
}

// table contains the encodings of the objects of one storage in one form.
type table struct {
	cache  *Cache
	listed atomic.Int64 // the sweep during which a list last used it

	mu      sync.RWMutex
	dropped bool
	entries map[any]*entry
}

// entry is one encoding.
type entry struct {
	version string // the object's resourceVersion
	data    []byte
	used    atomic.Int64 // the sweep during which a list last used it
}

func (e *entry) size() int64 { return int64(len(e.data)) + entryOverhead }

// table returns the table for a list. keep is false for the first list after a while: informers list once, and encodings for a
// list that is not repeated only take space.
func (c *Cache) table(key tableKey) (t *table, keep bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, keep = c.tables[key]
	if !keep {
		t = &table{cache: c, entries: map[any]*entry{}}
		c.tables[key] = t
	}
	t.listed.Store(c.sweep.Load())
	return t, keep
}

// drop removes entries and tables that no list has used since the previous call.
func (c *Cache) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	oldest := c.sweep.Add(1) - 1
	for key, t := range c.tables {
		if t.drop(oldest) {
			delete(c.tables, key)
		}
	}
}

// drop reports whether it has dropped the entire table.
func (t *table) drop(oldest int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropped = t.listed.Load() < oldest
	for id, e := range t.entries {
		if t.dropped || e.used.Load() < oldest {
			t.cache.bytes.Add(-e.size())
			delete(t.entries, id)
		}
	}
	return t.dropped
}

// find sets data to the available encodings of the objects.
func (t *table) find(objects []identity, data [][]byte) {
	now := t.cache.sweep.Load()
	t.mu.RLock()
	defer t.mu.RUnlock()
	for i, o := range objects {
		e := t.entries[o.address]
		if e == nil || o.address == nil || e.version != o.version {
			continue
		}
		if e.used.Load() != now {
			e.used.Store(now)
		}
		data[i] = e.data
	}
}

// keep adds an encoding if there is space. The caller must not modify data afterwards.
func (t *table) keep(o identity, data []byte) {
	e := &entry{version: o.version, data: data}
	e.used.Store(t.cache.sweep.Load())
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dropped {
		return
	}
	if t.cache.bytes.Add(e.size()) > t.cache.limit.Load() {
		t.cache.bytes.Add(-e.size())
		return
	}
	if before := t.entries[o.address]; before != nil {
		t.cache.bytes.Add(-before.size())
	}
	t.entries[o.address] = e
}
