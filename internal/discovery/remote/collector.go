package remote

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"portico.dev/internal/run"
	"portico.dev/internal/transport"
)

// Config is the configuration of a Collector of records T. All fields except Storage are required.
type Config[T any] struct {
	// Routes returns the current table. RoutesChanged returns a channel that is closed when the table is replaced.
	Routes        func() Table
	RoutesChanged func() <-chan struct{}
	// LocalChanged returns a channel that is closed when the local resources of this server change.
	LocalChanged func() <-chan struct{}
	// Storage keeps values across restarts. If nil, nothing is stored.
	Storage LastKnown
	// Decode decodes a stored value.
	Decode func(value []byte) (*T, error)
	// Adopt returns the record of a remote route, given its current record and the one that was stored before this start.
	// Either may be nil. It is called with the lock held.
	Adopt func(r Route, current, stored *T) *T
	// Merge adopts the value that another replica stored for a route, and reports whether the record changed. It is called
	// with the lock held.
	Merge func(r Route, record, stored *T) (changed bool)
	// PollNow reports whether the backend of a route must be polled immediately because the route has changed.
	PollNow func(before, after Route) bool
	// NewPoll returns the Poll of one backend.
	NewPoll func(b Backend) Poll
	// Publish makes documents from the records and returns the minimum time until the next call.
	Publish func() time.Duration
	// BackendEvents reports backends that may serve different documents than before. May be nil.
	BackendEvents *transport.Events
	// PollOnResources polls a backend immediately when it serves different resources than before.
	PollOnResources bool
	// Polls counts polls by result.
	Polls  *prometheus.CounterVec
	Logger *zap.Logger
}

// Collector keeps one record of type T for each remote group-version: the last response of its backend. It polls backends,
// stores records, adopts the records of other replicas, and publishes documents when something changed. Readers never wait
// for a backend.
type Collector[T any] struct {
	cfg     Config[T]
	poller  *poller
	storage *writer // nil if nothing is stored
	changed chan struct{}

	// mu is never held during I/O or encoding.
	mu    sync.Mutex
	table Table
	// routesOf contains the indices of the remote routes of each backend in table.Routes.
	routesOf map[Backend][]int
	// followed is set if table has been passed to follow.
	followed bool
	records  map[string]*T // by APIService, one for each remote route
	stored   map[string]*T // values loaded at the start that no route has adopted yet
}

// NewCollector returns a Collector that has not read or polled anything yet.
func NewCollector[T any](cfg Config[T]) *Collector[T] {
	c := &Collector[T]{cfg: cfg, changed: make(chan struct{}, 1), records: map[string]*T{}}
	c.poller = newPoller(c.newPoll)
	if cfg.Storage != nil {
		c.storage = newWriter(cfg.Storage, cfg.Logger)
	}
	return c
}

// Run loads the stored values, then polls and publishes until ctx ends.
func (c *Collector[T]) Run(ctx context.Context) error {
	if c.storage != nil {
		values, err := c.storage.load(ctx)
		if err != nil {
			return nil // ctx ended: load returns no other error
		}
		c.stored = c.decode(values)
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if c.cfg.BackendEvents != nil {
		events := &transport.Subscriber{DocumentsMayDiffer: func(b *transport.Backend) { c.poller.pollSoon(b) }}
		if c.cfg.PollOnResources {
			events.ResourcesChanged = func(b *transport.Backend) { c.poller.pollNow(b) }
		}
		defer c.cfg.BackendEvents.Subscribe(events)()
	}
	wg.Go(func() { c.poller.run(ctx) })
	if c.storage != nil {
		wg.Go(func() { c.storage.run(ctx) })
		wg.Go(func() { c.storage.follow(ctx, c.merge) })
	}
	for ctx.Err() == nil {
		// Get the channels before reading the data: a change in between is processed twice rather than missed.
		routesChanged, localChanged := c.cfg.RoutesChanged(), c.cfg.LocalChanged()
		c.follow(c.cfg.Routes())
		run.Pause(ctx, c.cfg.Publish())
		select {
		case <-ctx.Done():
		case <-routesChanged:
		case <-localChanged:
		case <-c.changed:
		}
	}
	return nil
}

// decode returns the stored records. An unreadable value has no record, because the next poll restores it. Its name stays,
// so that the value is deleted with its registration.
func (c *Collector[T]) decode(values map[string][]byte) map[string]*T {
	stored := make(map[string]*T, len(values))
	for name, value := range values {
		record, err := c.cfg.Decode(value)
		if err != nil {
			c.cfg.Logger.Warn("ignoring an unreadable stored document", zap.String("apiservice", name), zap.Error(err))
		}
		stored[name] = record
	}
	return stored
}

// follow switches to a new table. Backends that are new, or have changed routes, are polled immediately.
func (c *Collector[T]) follow(table Table) {
	c.mu.Lock()
	if c.followed && c.table.Equal(table) {
		c.mu.Unlock()
		return
	}
	c.followed = true
	before := make(map[string]Route, len(c.table.Routes))
	for _, r := range c.table.Routes {
		before[r.APIService] = r
	}
	c.table, c.routesOf = table, table.routesByBackend()
	c.adopt()
	c.mu.Unlock()

	for _, r := range table.Routes {
		if r.Local || r.Backend == nil {
			continue
		}
		// The poller polls new backends immediately anyway.
		if old, ok := before[r.APIService]; !ok || c.cfg.PollNow(old, r) {
			c.poller.pollNow(r.Backend)
		}
	}
	c.poller.keep(table.Backends())
}

// adopt assigns a record to every remote route and drops the records that no route needs. While the table is not synced, an
// APIService that is missing may still appear. The caller must hold mu.
func (c *Collector[T]) adopt() {
	needed := make(map[string]bool, len(c.table.Routes))
	for _, r := range c.table.Routes {
		if r.Local {
			continue
		}
		needed[r.APIService] = true
		c.records[r.APIService] = c.cfg.Adopt(r, c.records[r.APIService], c.stored[r.APIService])
		delete(c.stored, r.APIService)
	}
	for name := range c.records {
		if !needed[name] {
			delete(c.records, name)
			c.forget(name)
		}
	}
	if !c.table.Synced {
		return
	}
	for name := range c.stored {
		c.forget(name)
	}
	c.stored = nil
}

// newPoll returns the Poll of one backend, with metrics.
func (c *Collector[T]) newPoll(b Backend) Poll {
	poll := c.cfg.NewPoll(b)
	return func(ctx context.Context) (bool, error) {
		changed, err := poll(ctx)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err() // the poller is stopping; the result is not about the backend
		case err == nil, errors.Is(err, ErrUnconfirmed):
			c.cfg.Polls.WithLabelValues("ok").Inc()
		default:
			c.cfg.Polls.WithLabelValues("failed").Inc()
		}
		return changed, err
	}
}

// merge adopts the value that another replica stored, so that all replicas serve the same documents: polls are a minute
// apart, and a backend may be reachable from one replica only.
func (c *Collector[T]) merge(name string, value []byte) {
	record, err := c.cfg.Decode(value)
	if err != nil {
		c.cfg.Logger.Warn("ignoring an unreadable document of another replica", zap.String("apiservice", name), zap.Error(err))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.table.Routes, func(r Route) bool { return r.APIService == name && !r.Local })
	if i >= 0 && c.cfg.Merge(c.table.Routes[i], c.records[name], record) {
		c.Announce()
	}
}

// Announce publishes the documents again. It does not block.
func (c *Collector[T]) Announce() {
	select {
	case c.changed <- struct{}{}:
	default: // the loop has not processed the previous signal yet, and will include this change
	}
}

// Each calls visit with every route of a backend and its record, with the lock held. A nil backend means all backends.
func (c *Collector[T]) Each(b Backend, visit func(r Route, record *T)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b != nil { // called by every poll of each of a thousand backends
		for _, i := range c.routesOf[b] {
			r := c.table.Routes[i]
			visit(r, c.records[r.APIService])
		}
		return
	}
	for _, r := range c.table.Routes {
		if !r.Local {
			visit(r, c.records[r.APIService])
		}
	}
}

// Read calls read with the table and the records by APIService, with the lock held.
func (c *Collector[T]) Read(read func(table Table, records map[string]*T)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	read(c.table, c.records)
}

// Save stores the value of an APIService in the background. It does not block.
func (c *Collector[T]) Save(name string, value []byte) {
	if c.storage != nil {
		c.storage.put(name, value)
	}
}

func (c *Collector[T]) forget(name string) {
	if c.storage != nil {
		c.storage.put(name, nil)
	}
}
