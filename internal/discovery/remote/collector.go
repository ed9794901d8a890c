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

// Config is what a Collector of records T needs. All but Storage is required.
type Config[T any] struct {
	// Routes returns the current table, RoutesChanged a channel that is closed when there is another one.
	Routes        func() Table
	RoutesChanged func() <-chan struct{}
	// LocalChanged returns a channel that is closed when what this server serves itself changes.
	LocalChanged func() <-chan struct{}
	// Storage keeps values across restarts. Default nil: nothing is kept.
	Storage LastKnown
	// Decode reads a stored value.
	Decode func(value []byte) (*T, error)
	// Adopt returns the record of a remote route, given the one that it has and the one that was stored before this start.
	// Either may be nil. It is called with the lock held.
	Adopt func(r Route, current, stored *T) *T
	// Merge takes over what another replica stored for a route, and reports whether the record changed. It is called with
	// the lock held.
	Merge func(r Route, record, stored *T) (changed bool)
	// PollNow reports whether the backend of a route is polled at once because the route has changed.
	PollNow func(before, after Route) bool
	// NewPoll returns the Poll of one backend.
	NewPoll func(b Backend) Poll
	// Publish makes documents of the records and returns the least time until the next call.
	Publish func() time.Duration
	// BackendEvents tells of backends that may serve other documents than before. Default nil: nobody tells.
	BackendEvents *transport.Events
	// PollOnResources: a backend is polled at once when it serves other resources than it did.
	PollOnResources bool
	// Polls counts polls by result.
	Polls  *prometheus.CounterVec
	Logger *zap.Logger
}

// Collector keeps one record of type T for each remote group-version: what its backend last answered. It polls
// backends, stores answers, takes over those of other replicas, and has them published when something changed. No
// reader waits for a backend.
type Collector[T any] struct {
	cfg     Config[T]
	poller  *poller
	storage *writer // nil: nothing is stored
	changed chan struct{}

	// mu is never held during I/O or encoding.
	mu    sync.Mutex
	table Table
	// routesOf are the indices of the routes of each backend in table.Routes, none of them local.
	routesOf map[Backend][]int
	// followed is set when table is one that was followed.
	followed bool
	records  map[string]*T // by APIService, one for each remote route
	stored   map[string]*T // what was loaded at the start and no route has adopted yet
}

// NewCollector returns a Collector that has not read or asked anything yet.
func NewCollector[T any](cfg Config[T]) *Collector[T] {
	c := &Collector[T]{cfg: cfg, changed: make(chan struct{}, 1), records: map[string]*T{}}
	c.poller = newPoller(c.newPoll)
	if cfg.Storage != nil {
		c.storage = newWriter(cfg.Storage, cfg.Logger)
	}
	return c
}

// Run loads what was stored, then polls and publishes until ctx ends.
func (c *Collector[T]) Run(ctx context.Context) error {
	if c.storage != nil {
		values, err := c.storage.load(ctx)
		if err != nil {
			return nil // ctx ended: nothing else ends the loading
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
		// Taken before what they announce is read: a change in between is seen again rather than missed.
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

// decode leaves the record out of what it cannot read: the backend will answer it again. The name stays, so that the value goes with its
// registration.
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

// follow takes a new table over. Backends that are new, or whose routes changed, are polled at once.
func (c *Collector[T]) follow(table Table) {
	c.mu.Lock()
	if c.followed && c.table.Same(table) {
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
		// A backend that is new to the poller is polled at once anyway.
		if old, ok := before[r.APIService]; !ok || c.cfg.PollNow(old, r) {
			c.poller.pollNow(r.Backend)
		}
	}
	c.poller.keep(table.Backends())
}

// adopt gives every remote route its record and drops those that no route needs. While the table is not synced, an
// APIService that is not in it may still come. The caller holds mu.
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

// newPoll counts the polls of one backend.
func (c *Collector[T]) newPoll(b Backend) Poll {
	poll := c.cfg.NewPoll(b)
	return func(ctx context.Context) (bool, error) {
		changed, err := poll(ctx)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err() // the poller is stopping, which says nothing about the backend
		case err == nil, errors.Is(err, ErrUnconfirmed):
			c.cfg.Polls.WithLabelValues("ok").Inc()
		default:
			c.cfg.Polls.WithLabelValues("failed").Inc()
		}
		return changed, err
	}
}

// merge takes over what another replica stored, so that all replicas serve the same documents: polls are a minute apart,
// and a backend may be reachable from one replica only.
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

// Announce has the documents published again. It does not block.
func (c *Collector[T]) Announce() {
	select {
	case c.changed <- struct{}{}:
	default: // the loop has not seen the previous one yet, and will see this change too
	}
}

// Each calls visit with every route of a backend and its record, with the lock held. A nil backend stands for all.
func (c *Collector[T]) Each(b Backend, visit func(r Route, record *T)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b != nil { // every poll of one of a thousand backends asks for its own
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

// Save stores the value of an APIService soon. It does not block.
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
