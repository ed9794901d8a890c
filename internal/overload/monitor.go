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

// Reliever lets go of memory. It is called by the Monitor, one call at a time, and must not wait for clients.
type Reliever interface {
	// CloseIdle is called at every reading while load is shed.
	CloseIdle()
	// CutLargest is called at Critical and beyond, and then no more until a collection has shown what came of it. It closes the
	// connections that hold most until they held n bytes.
	CutLargest(n int64)
}

// Config is a Monitor.
type Config struct {
	Limit   Limit
	Metrics *metrics.Overload
	Logger  *zap.Logger
}

// Monitor knows how short memory is. Its methods are safe for concurrent use.
type Monitor struct {
	c       Config
	level   atomic.Int32
	read    func() Reading
	collect func() // a collection; it returns when that has ended
	intake  Intake

	mu        sync.Mutex // guards what follows
	relievers []Reliever
}

const (
	// relaxed and attentive are the times between readings, below and beyond half of the limit.
	relaxed, attentive = 100 * time.Millisecond, 20 * time.Millisecond
	// collectEvery is the least time between collections that are asked for.
	collectEvery = 500 * time.Millisecond
)

// New allocates a Monitor of a limit that is not 0.
func New(c Config) *Monitor {
	return &Monitor{c: c, read: newReader(c.Limit).read, collect: runtime.GC}
}

// ReadWith has readings come from somewhere else. It is for tests, before Run.
func (m *Monitor) ReadWith(read func() Reading) { m.read = read }

// Level is how short memory is now.
func (m *Monitor) Level() Level { return Level(m.level.Load()) }

// Intake is what connections ask before they pass on what came.
func (m *Monitor) Intake() *Intake {
	if m == nil {
		return nil
	}
	return &m.intake
}

// Attach has r let go of memory from now on, until detach is called, which waits for a call in hand.
func (m *Monitor) Attach(r Reliever) (detach func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.relievers = append(m.relievers, r)
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		for i, other := range m.relievers {
			if other == r {
				m.relievers = append(m.relievers[:i:i], m.relievers[i+1:]...)
				return
			}
		}
	}
}

// Run reads until ctx ends. Afterwards the level is Normal.
func (m *Monitor) Run(ctx context.Context) error {
	m.c.Metrics.Limit.Set(float64(m.c.Limit.Bytes))
	m.c.Logger.Info("load is shed when memory runs short", zap.Uint64("limit", m.c.Limit.Bytes), zap.String("from", m.c.Limit.Source))
	w := watch{Monitor: m, ladder: ladder{limit: m.c.Limit.Bytes}}
	defer m.level.Store(int32(Normal))
	defer m.intake.open()
	defer w.collections.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		timer.Reset(w.look(time.Now()))
	}
}

// watch is what Run knows.
type watch struct {
	*Monitor
	ladder      ladder
	cycles      uint64    // collections at the last reading
	collected   time.Time // when they became more, or one was asked for
	collecting  atomic.Bool
	collections sync.WaitGroup
	cutAt       uint64    // collections when connections were cut
	cut         time.Time // zero: none were
}

// look takes a reading and does what follows. It returns when to take the next one.
func (w *watch) look(now time.Time) time.Duration {
	r := w.read()
	before := w.ladder.level
	level := w.ladder.step(r, now)
	w.level.Store(int32(level))
	w.c.Metrics.Used.Set(float64(r.Certain))
	w.c.Metrics.Level.Set(float64(level))
	if level != before {
		w.c.Logger.Warn("memory", zap.Stringer("level", level), zap.Stringer("before", before),
			zap.Uint64("used", r.Certain), zap.Uint64("allocated", r.Possible), zap.Uint64("limit", w.ladder.limit))
	}
	if r.Cycles != w.cycles {
		w.cycles, w.collected = r.Cycles, now
	}
	if level > Normal || w.ladder.beyond(r.Possible, thresholds[Shedding].from) {
		w.collectNow(now)
	}
	if level > Normal {
		w.relieve(level, r, now)
	}
	if !w.ladder.beyond(r.Possible, 50) {
		w.intake.open()
		return relaxed
	}
	parts := uint64(intakeParts)
	if level >= Critical || w.ladder.beyond(r.Possible, 100) {
		parts = shortParts
	}
	w.intake.refill(int64(w.ladder.limit / parts))
	return attentive
}

// collectNow has what is garbage become known, unless that has just been done.
func (w *watch) collectNow(now time.Time) {
	if now.Sub(w.collected) < collectEvery || w.collecting.Swap(true) {
		return
	}
	w.collected = now
	w.collections.Go(func() {
		defer w.collecting.Store(false)
		w.collect()
	})
}

// shown is after how many collections it is known what came of cutting connections: one may have begun before.
const shown = 2

func (w *watch) relieve(level Level, r Reading, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, reliever := range w.relievers {
		reliever.CloseIdle()
	}
	if level < Critical || !w.cut.IsZero() && r.Cycles < w.cutAt+shown && now.Sub(w.cut) < 2*collectEvery {
		return
	}
	excess := w.ladder.excess(r)
	if excess <= 0 {
		return
	}
	w.cut, w.cutAt = now, r.Cycles
	for _, reliever := range w.relievers {
		reliever.CutLargest(excess)
	}
}
