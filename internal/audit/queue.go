package audit

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"portico.dev/internal/metrics"
)

const (
	// maxQueued bounds the bytes of events that wait for one sink.
	maxQueued = 32 << 20
	// shutdownTimeout is how long a sink may take, once asked to stop, to write what is queued.
	shutdownTimeout = 5 * time.Second
)

// sink is where encoded events go. Only one goroutine calls it.
type sink interface {
	// send writes the events of one batch, and does not keep it. It returns how many were written, and why the others
	// were not.
	send(ctx context.Context, b *batch) (written int, err error)
	// close gives up what the sink holds.
	close() error
}

// queue holds the events of one sink until they are written.
type queue struct {
	name  string
	sink  sink
	batch batching
	log   *zap.Logger
	drops prometheus.Counter
	sent  prometheus.Counter

	mu      sync.Mutex // guards what follows
	waiting []*batch   // the last one is being filled
	events  int        // in them
	bytes   int
	free    []*batch // room for the next ones
	closed  bool
	lastErr error // why the last batch was lost; nil: it was not
	lost    int   // events lost since the last batch that was sent

	wake chan struct{} // holds a value while something is waiting
}

// batching says when a batch is due.
type batching struct {
	// maxEvents is how many events make a batch, and room how many bytes. Zero: no such bound.
	maxEvents, maxBytes int
	// wait is how long the first event of a batch waits for others; zero sends what there is.
	wait time.Duration
	// eager sends an event at once when none was sent for as long as wait, so that a single event does not wait.
	eager bool
}

// full reports whether nothing more goes into b.
func (g batching) full(b *batch) bool {
	return g.maxEvents > 0 && len(b.ends) >= g.maxEvents || g.maxBytes > 0 && len(b.text) >= g.maxBytes
}

// fits reports whether another event of so many bytes goes into b.
func (g batching) fits(b *batch, event int) bool {
	return !g.full(b) && (g.maxBytes == 0 || len(b.ends) == 0 || len(b.text)+event <= g.maxBytes)
}

func newQueue(name string, s sink, b batching, m *metrics.Audit, log *zap.Logger) *queue {
	return &queue{
		name: name, sink: s, batch: b, log: log, wake: make(chan struct{}, 1),
		drops: m.Dropped.WithLabelValues(name), sent: m.Written.WithLabelValues(name),
	}
}

// enqueue takes a copy of an event, which ends with its line feed, unless there is no room for it.
func (q *queue) enqueue(line []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.bytes+len(line) > maxQueued {
		q.lost++
		q.drops.Inc()
		return
	}
	n := len(q.waiting)
	begun := n > 0 && q.batch.fits(q.waiting[n-1], len(line))
	if !begun {
		q.addBatch()
	}
	b := q.waiting[len(q.waiting)-1]
	b.add(line)
	q.events++
	q.bytes += len(line)
	if !begun && n <= 1 || n == 1 && q.batch.full(b) { // the first event, or that the first batch is complete
		q.signal()
	}
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// addBatch adds an empty batch behind the others. Called with mu held.
func (q *queue) addBatch() {
	b := &batch{}
	if n := len(q.free); n > 0 {
		b, q.free = q.free[n-1], q.free[:n-1]
	} else {
		b.text = make([]byte, 0, q.batch.maxBytes)
	}
	q.waiting = append(q.waiting, b)
}

func (q *queue) batches() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// take is the next batch; there must be one.
func (q *queue) take() *batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.waiting[0]
	q.waiting[0] = nil
	if q.waiting = q.waiting[1:]; len(q.waiting) == 0 {
		q.waiting = nil
	}
	q.events -= len(b.ends)
	q.bytes -= len(b.text)
	return b
}

// recycle takes back a batch that was sent, as room for another.
func (q *queue) recycle(b *batch) {
	if cap(b.text) > maxKept {
		return
	}
	b.text, b.ends = b.text[:0], b.ends[:0]
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.free) < maxSpare {
		q.free = append(q.free, b)
	}
}

// completeBatches is how many batches take nothing more.
func (q *queue) completeBatches() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.waiting)
	if n > 0 && !q.batch.full(q.waiting[n-1]) {
		n--
	}
	return n
}

// run sends batches until ctx ends, and then what is left, within shutdownTimeout. A sink that hangs in a system call
// cannot be stopped; it is left behind with an error in the log, rather than delaying the whole server.
func (q *queue) run(ctx context.Context) error {
	sending, hurry := context.WithCancel(context.WithoutCancel(ctx))
	defer hurry()
	done := make(chan error, 1)
	go func() {
		q.sendLoop(ctx, sending)
		done <- q.sink.close()
	}()
	<-ctx.Done()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("audit %s: %w", q.name, err)
		}
	case <-time.After(shutdownTimeout):
		q.drops.Add(float64(q.close()))
		q.log.Error("audit sink hangs; events that it was given are lost", zap.String("sink", q.name))
	}
	return nil
}

// sendLoop sends what arrives until ctx ends, and what is left then, as long as sending lasts.
func (q *queue) sendLoop(ctx, sending context.Context) {
	var last time.Time // of a batch
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-q.wake:
		}
		if q.batches() == 0 {
			continue // what the signal was for has been sent already
		}
		wait := q.batch.wait
		if q.batch.eager {
			wait -= time.Since(last)
		}
		q.sendBatches(sending, q.waitDue(ctx, wait))
		last = time.Now()
	}
	q.close()
	q.sendBatches(sending, q.batches())
}

// waitDue waits until a batch is complete, and returns how many are: those behind them wait for more events. It waits
// no longer than wait, nor than ctx lasts; then whatever is there is due.
func (q *queue) waitDue(ctx context.Context, wait time.Duration) int {
	if wait <= 0 {
		return q.batches()
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	for {
		if n := q.completeBatches(); n > 0 {
			return n
		}
		select {
		case <-ctx.Done():
			return q.batches()
		case <-over.C:
			return q.batches()
		case <-q.wake: // perhaps for a batch that was sent before
		}
	}
}

// close takes no further events, and returns how many are still waiting.
func (q *queue) close() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	return q.events
}

// sendBatches sends the first n batches. For what is left there is a signal then.
func (q *queue) sendBatches(ctx context.Context, n int) {
	for ; n > 0 && ctx.Err() == nil; n-- {
		b := q.take()
		events := len(b.ends)
		written, err := q.sink.send(ctx, b)
		q.report(written, events-written, err)
		q.recycle(b)
	}
	if q.batches() > 0 {
		q.signal()
	}
}

// report counts, and logs once when events begin to be lost and once when that has ended.
func (q *queue) report(written, lost int, err error) {
	q.sent.Add(float64(written))
	q.drops.Add(float64(lost))
	q.mu.Lock()
	before := q.lastErr
	q.lastErr = err
	q.lost += lost
	total := q.lost
	if err == nil {
		q.lost = 0
	}
	q.mu.Unlock()
	switch {
	case err != nil && before == nil:
		q.log.Error("audit events are being lost", zap.String("sink", q.name), zap.Error(err))
	case err == nil && total > 0:
		q.log.Warn("audit events were lost, and are written again", zap.String("sink", q.name), zap.Int("lost", total))
	}
}

// batch is events in one piece, a line each.
type batch struct {
	text []byte
	ends []int // of each event, its line feed included
}

// maxKept bounds the room that is kept for a batch to come, maxSpare how many are kept.
const (
	maxKept  = 2 * maxWriteBytes
	maxSpare = 8
)

func (b *batch) add(line []byte) {
	b.text = append(b.text, line...)
	b.ends = append(b.ends, len(b.text))
}

// event is the nth without its line feed.
func (b *batch) event(n int) []byte {
	start := 0
	if n > 0 {
		start = b.ends[n-1]
	}
	return b.text[start : b.ends[n]-1]
}
