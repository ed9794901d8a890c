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
	// maxQueued is the maximum number of bytes of events that wait for a sink.
	maxQueued = 32 << 20
	// shutdownTimeout is how long a sink may take at shutdown to write the queued events.
	shutdownTimeout = 5 * time.Second
)

// sink is a destination for encoded events. It is called from one goroutine only.
type sink interface {
	// send writes the events of a batch and must not retain it. It returns the number of written events, and an error
	// if there are others.
	send(ctx context.Context, b *batch) (written int, err error)
	// close releases the resources of the sink.
	close() error
}

// queue holds the events of a sink until they are written.
type queue struct {
	name  string
	sink  sink
	batch batching
	log   *zap.Logger
	drops prometheus.Counter
	sent  prometheus.Counter

	mu      sync.Mutex // guards the fields below
	waiting []*batch   // the last batch is being filled
	events  int        // number of events in waiting
	bytes   int
	free    []*batch // batches for reuse
	closed  bool
	lastErr error // error of the last batch; nil on success
	lost    int   // events lost since the last successful batch

	wake chan struct{} // holds a value while events are waiting
}

// batching determines when a batch is sent.
type batching struct {
	// maxEvents and maxBytes limit a batch. Zero means no limit.
	maxEvents, maxBytes int
	// wait is how long the first event of a batch waits for more events. Zero sends immediately.
	wait time.Duration
	// eager sends an event immediately if none was sent for the duration of wait.
	eager bool
}

// full reports whether b has reached a limit.
func (g batching) full(b *batch) bool {
	return g.maxEvents > 0 && len(b.ends) >= g.maxEvents || g.maxBytes > 0 && len(b.text) >= g.maxBytes
}

// fits reports whether an event of the given size may be added to b.
func (g batching) fits(b *batch, event int) bool {
	return !g.full(b) && (g.maxBytes == 0 || len(b.ends) == 0 || len(b.text)+event <= g.maxBytes)
}

func newQueue(name string, s sink, b batching, m *metrics.Audit, log *zap.Logger) *queue {
	return &queue{
		name: name, sink: s, batch: b, log: log, wake: make(chan struct{}, 1),
		drops: m.Dropped.WithLabelValues(name), sent: m.Written.WithLabelValues(name),
	}
}

// enqueue adds a copy of an event, which must end with a line feed, or drops the event if the queue is full.
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
	if !begun && n <= 1 || n == 1 && q.batch.full(b) { // the first event, or the first batch became full
		q.signal()
	}
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// addBatch appends an empty batch. It is called with mu held.
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

// take removes and returns the first batch. The queue must not be empty.
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

// recycle keeps a sent batch for reuse.
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

// completeBatches returns the number of batches that accept no more events.
func (q *queue) completeBatches() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.waiting)
	if n > 0 && !q.batch.full(q.waiting[n-1]) {
		n--
	}
	return n
}

// run sends batches until ctx ends, and then the remaining ones within shutdownTimeout. A sink that hangs in a system
// call cannot be stopped. It is abandoned with an error in the log, so that it does not delay the shutdown of the
// server.
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
		q.log.Error("audit sink did not shut down in time; queued events are lost", zap.String("sink", q.name))
	}
	return nil
}

// sendLoop sends batches until ctx ends, and then the remaining ones until sending ends.
func (q *queue) sendLoop(ctx, sending context.Context) {
	var last time.Time // time of the last batch
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-q.wake:
		}
		if q.batches() == 0 {
			continue // already sent
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

// waitDue waits until a batch is complete and returns the number of complete batches; later batches wait for more
// events. When wait has passed or ctx ends, it returns the number of all batches.
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
		case <-q.wake: // may refer to a batch that was already sent
		}
	}
}

// close stops accepting events and returns the number of waiting ones.
func (q *queue) close() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	return q.events
}

// sendBatches sends the first n batches. If others remain, it signals wake.
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

// report counts events. It logs once when events begin to be lost and once when events are written again.
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
		q.log.Error("failed to write audit events", zap.String("sink", q.name), zap.Error(err))
	case err == nil && total > 0:
		q.log.Warn("audit events were lost; the sink accepts events again", zap.String("sink", q.name), zap.Int("lost", total))
	}
}

// batch holds events in a single buffer, one per line.
type batch struct {
	text []byte
	ends []int // end of each event, including its line feed
}

// maxKept is the maximum size of a batch that is kept for reuse, and maxSpare the number of kept batches.
const (
	maxKept  = 2 * maxWriteBytes
	maxSpare = 8
)

func (b *batch) add(line []byte) {
	b.text = append(b.text, line...)
	b.ends = append(b.ends, len(b.text))
}

// event returns the nth event without its line feed.
func (b *batch) event(n int) []byte {
	start := 0
	if n > 0 {
		start = b.ends[n-1]
	}
	return b.text[start : b.ends[n]-1]
}
