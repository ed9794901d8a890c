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
	// maxBytes bounds what is kept, with a limit of memory to a sixteenth of that: the encodings of 50,000 objects of 1 KB.
	maxBytes, limitShare = 64 << 20, 16
	// sweepInterval is how often encodings are dropped that no list has used since the sweep before.
	sweepInterval = 20 * time.Second
	// entryOverhead is what an encoding takes beside its bytes: the entry, its place in the map, and the managed fields that it
	// keeps.
	entryOverhead = 256
)

// Cache has the encodings of objects that were listed lately. Its size is bounded: what does not fit is not kept, because lists
// ask for all objects in turn, and whatever would be evicted for the last of them is what the next list begins with.
type Cache struct {
	limit atomic.Int64
	bytes atomic.Int64 // of all entries
	sweep atomic.Int64 // number of the current one

	buffers buffers

	mu     sync.Mutex
	tables map[tableKey]*table
}

// New returns an empty cache. Run bounds how long things stay in it.
func New() *Cache {
	c := &Cache{tables: map[tableKey]*table{}, buffers: newBuffers()}
	c.bound()
	return c
}

// bound follows the limit of memory, which may have been set after the start.
func (c *Cache) bound() {
	limit := int64(maxBytes)
	if memory := debug.SetMemoryLimit(-1); memory != math.MaxInt64 {
		limit = min(limit, memory/limitShare)
	}
	c.limit.Store(limit)
}

// Bytes is how much is kept.
func (c *Cache) Bytes() int64 { return c.bytes.Load() }

// Run drops what is not used any more, until ctx ends.
func (c *Cache) Run(ctx context.Context) {
	_ = run.Every(ctx, sweepInterval, func(context.Context) { // never an error
		c.bound()
		c.drop()
	})
}

// tableKey tells encodings of the same object apart.
type tableKey struct {
	storage any
	form    form
}

// table has the encodings of the objects of one storage in one form.
type table struct {
	of     *Cache
	listed atomic.Int64 // the sweep during which it was last asked for

	mu      sync.RWMutex
	dropped bool
	entries map[any]*entry
}

// entry is one encoding.
type entry struct {
	version string // the object's resourceVersion
	data    []byte
	used    atomic.Int64 // the sweep during which it was last used
}

func (e *entry) size() int64 { return int64(len(e.data)) + entryOverhead }

// table returns the table for a list. keep is false for the first list in a while: informers list once, and what is kept for a list
// that does not come again is only in the way.
func (c *Cache) table(key tableKey) (t *table, keep bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, keep = c.tables[key]
	if !keep {
		t = &table{of: c, entries: map[any]*entry{}}
		c.tables[key] = t
	}
	t.listed.Store(c.sweep.Load())
	return t, keep
}

// drop removes entries that were not used since the last call but one, and tables that were not asked for.
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

// drop reports whether the table as a whole is dropped.
func (t *table) drop(oldest int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropped = t.listed.Load() < oldest
	for id, e := range t.entries {
		if t.dropped || e.used.Load() < oldest {
			t.of.bytes.Add(-e.size())
			delete(t.entries, id)
		}
	}
	return t.dropped
}

// find sets data to the encodings that there are of the objects.
func (t *table) find(objects []identity, data [][]byte) {
	now := t.of.sweep.Load()
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

// keep adds an encoding that the caller does not change any more, if there is room.
func (t *table) keep(o identity, data []byte) {
	e := &entry{version: o.version, data: data}
	e.used.Store(t.of.sweep.Load())
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dropped {
		return
	}
	if t.of.bytes.Add(e.size()) > t.of.limit.Load() {
		t.of.bytes.Add(-e.size())
		return
	}
	if before := t.entries[o.address]; before != nil {
		t.of.bytes.Add(-before.size())
	}
	t.entries[o.address] = e
}
