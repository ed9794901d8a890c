package overload

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/metrics"
)

// ConnCloser frees memory by closing connections. The Monitor makes one call at a time. Calls must not wait for
// clients.
type ConnCloser interface {
	// CloseIdle is called at every reading while load is shed.
	CloseIdle()
	// CutLargest is called at Critical and Exhausted. It closes the connections that hold most memory until they held
	// n bytes. It is not called again until collections have shown its effect.
	CutLargest(n int64)
}

// Config configures a Monitor.
type Config struct {
	Limit   Limit
	Metrics *metrics.Overload
	Logger  *zap.Logger
}

// Monitor determines the Level. It is safe for concurrent use.
type Monitor struct {
	c           Config
	level       atomic.Int32
	read        func() Reading
	collect     func() // performs a complete garbage collection
	readLimiter ReadLimiter

	mu      sync.Mutex // guards closers
	closers []ConnCloser
}

const (
	// slowInterval and fastInterval are the intervals between readings below and above half of the limit.
	slowInterval, fastInterval = 100 * time.Millisecond, 20 * time.Millisecond
	// minGCInterval is the minimum interval between collections triggered by the Monitor.
	minGCInterval = 500 * time.Millisecond
)

// New returns a Monitor. The limit must not be 0.
func New(c Config) *Monitor {
	return &Monitor{c: c, read: newReader(c.Limit).read, collect: runtime.GC}
}

// ReadWith replaces the source of readings. Tests call it before Run.
func (m *Monitor) ReadWith(read func() Reading) { m.read = read }

// Level returns the current level.
func (m *Monitor) Level() Level { return Level(m.level.Load()) }

// ReadLimiter returns the limiter for connections to call after a read. It returns nil if m is nil.
func (m *Monitor) ReadLimiter() *ReadLimiter {
	if m == nil {
		return nil
	}
	return &m.readLimiter
}

// Register adds r until detach is called. detach waits for a running call.
func (m *Monitor) Register(r ConnCloser) (detach func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closers = append(m.closers, r)
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		for i, other := range m.closers {
			if other == r {
				m.closers = append(m.closers[:i:i], m.closers[i+1:]...)
				return
			}
		}
	}
}

// Run takes readings until ctx ends. Then the level is reset to Normal.
func (m *Monitor) Run(ctx context.Context) error {
	m.c.Metrics.Limit.Set(float64(m.c.Limit.Bytes))
	m.c.Logger.Info("load shedding on low memory is enabled", zap.Uint64("limit", m.c.Limit.Bytes), zap.String("from", m.c.Limit.Source))
	w := monitorRun{Monitor: m, tracker: levelTracker{limit: m.c.Limit.Bytes}}
	defer m.level.Store(int32(Normal))
	defer m.readLimiter.disable()
	defer w.collections.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		timer.Reset(w.check(time.Now()))
	}
}

// monitorRun is the state of Run.
type monitorRun struct {
	*Monitor
	tracker     levelTracker
	cycles      uint64    // at the last reading
	collected   time.Time // time of the last increase of cycles or start of a collection
	collecting  atomic.Bool
	collections sync.WaitGroup
	cutAt       uint64    // value of cycles when connections were cut
	cut         time.Time // zero before the first cut
}

// check takes a reading and acts on it. It returns the time until the next reading.
func (w *monitorRun) check(now time.Time) time.Duration {
	r := w.read()
	before := w.tracker.level
	level := w.tracker.update(r, now)
	w.level.Store(int32(level))
	w.c.Metrics.Used.Set(float64(r.InUse))
	w.c.Metrics.Level.Set(float64(level))
	if level != before {
		w.c.Logger.Warn("memory level changed", zap.Stringer("level", level), zap.Stringer("before", before),
			zap.Uint64("used", r.InUse), zap.Uint64("allocated", r.Allocated), zap.Uint64("limit", w.tracker.limit))
	}
	if r.Cycles != w.cycles {
		w.cycles, w.collected = r.Cycles, now
	}
	if level > Normal || w.tracker.beyond(r.Allocated, thresholds[Shedding].from) {
		w.collectNow(now)
	}
	if level > Normal {
		w.freeMemory(level, r, now)
	}
	if !w.tracker.beyond(r.Allocated, 50) {
		w.readLimiter.disable()
		return slowInterval
	}
	parts := uint64(readParts)
	if level >= Critical || w.tracker.beyond(r.Allocated, 100) {
		parts = lowReadParts
	}
	w.readLimiter.refill(int64(w.tracker.limit / parts))
	return fastInterval
}

// collectNow starts a collection, unless one was started or completed recently.
func (w *monitorRun) collectNow(now time.Time) {
	if now.Sub(w.collected) < minGCInterval || w.collecting.Swap(true) {
		return
	}
	w.collected = now
	w.collections.Go(func() {
		defer w.collecting.Store(false)
		w.collect()
	})
}

// gcsToSettle is the number of collections after which the effect of cutting connections is visible. The first one
// may have begun earlier.
const gcsToSettle = 2

func (w *monitorRun) freeMemory(level Level, r Reading, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, closer := range w.closers {
		closer.CloseIdle()
	}
	if level < Critical || !w.cut.IsZero() && r.Cycles < w.cutAt+gcsToSettle && now.Sub(w.cut) < 2*minGCInterval {
		return
	}
	excess := w.tracker.excess(r)
	if excess <= 0 {
		return
	}
	w.cut, w.cutAt = now, r.Cycles
	for _, closer := range w.closers {
		closer.CutLargest(excess)
	}
}
