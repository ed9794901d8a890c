package audit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"portico.dev/internal/metrics"
)

const (
	// maxQueued limits the memory of events that wait for a sink.
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

// queue holds the events of a sink until they are written. Requests do not wait for each other or for the sink: each adds its event
// to a list with one atomic operation. The goroutine of run takes the list, and copies the events to batches.
type queue struct {
	name  string
	sink  sink
	batch batching
	log   *zap.Logger
	drops prometheus.Counter
	sent  prometheus.Counter

	arrived atomic.Pointer[queued] // the newest, which leads to the ones before; closedQueue at the end
	events  atomic.Int64           // number of events in arrived and taken
	bytes   atomic.Int64           // their memory
	lost    atomic.Int64           // events lost since the last successful batch
	wake    chan struct{}          // holds a value when there is a first event, or enough for a batch

	// Only the goroutine of run uses these fields, but kept is also read by requests.
	taken   *queued // the oldest, which leads to the ones after
	filling batch
	kept    struct{ events, bytes atomic.Int64 } // in filling

	reporting sync.Mutex // guards lastErr
	lastErr   error      // error of the last batch; nil on success
}

// queued is an encoded event that ends with a line feed.
type queued struct {
	line []byte
	next *queued
}

// spare holds events for reuse, with their memory.
var spare = sync.Pool{New: func() any { return &queued{line: make([]byte, 0, typicalEventBytes)} }}

// newQueued returns an event with an empty line.
func newQueued() *queued {
	e := spare.Get().(*queued)
	e.line = e.line[:0]
	return e
}

// free keeps an event for reuse, unless it is large.
func (e *queued) free() {
	if e.next = nil; cap(e.line) <= maxScratch {
		spare.Put(e)
	}
}

// closedQueue is in queue.arrived when no more events are accepted.
var closedQueue = new(queued)

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

// enqueue adds an event, or drops it if the queue is full. The event then belongs to the queue.
func (q *queue) enqueue(e *queued) {
	size := int64(cap(e.line))
	q.events.Add(1)
	if q.bytes.Add(size) > maxQueued {
		q.drop(e)
		return
	}
	for {
		newest := q.arrived.Load()
		if newest == closedQueue {
			q.drop(e)
			return
		}
		e.next = newest
		if !q.arrived.CompareAndSwap(newest, e) { // the list is only taken as a whole, so that newest may have been in it before
			continue
		}
		if newest == nil || q.enough() {
			q.signal()
		}
		return
	}
}

// drop drops an event that enqueue has counted.
func (q *queue) drop(e *queued) {
	q.lost.Add(1)
	q.drops.Inc()
	q.uncount(e)
	e.free()
}

func (q *queue) uncount(e *queued) {
	q.events.Add(-1)
	q.bytes.Add(-int64(cap(e.line)))
}

// enough reports whether there may be a complete batch.
func (q *queue) enough() bool {
	most := q.batch
	return most.maxEvents > 0 && q.events.Load()+q.kept.events.Load() >= int64(most.maxEvents) ||
		most.maxBytes > 0 && q.bytes.Load()+q.kept.bytes.Load() >= int64(most.maxBytes)
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take moves the events that have arrived to the end of taken, in their order. newest is the last of them.
func (q *queue) take(newest *queued) {
	if newest == closedQueue {
		return
	}
	var oldest *queued
	for newest != nil {
		newest.next, oldest, newest = oldest, newest, newest.next
	}
	end := &q.taken
	for *end != nil {
		end = &(*end).next
	}
	*end = oldest
}

// takeArrived takes the events that have arrived.
func (q *queue) takeArrived() {
	for {
		newest := q.arrived.Load()
		if newest == nil || newest == closedQueue {
			return
		}
		if q.arrived.CompareAndSwap(newest, nil) {
			q.take(newest)
			return
		}
	}
}

// fill copies the events that were taken to the batch, and reports whether it is complete.
func (q *queue) fill() (complete bool) {
	if q.filling.text == nil {
		q.filling.text = make([]byte, 0, q.batch.maxBytes)
	}
	for !complete && q.taken != nil {
		e := q.taken
		if !q.batch.fits(&q.filling, len(e.line)) {
			complete = true
			break
		}
		q.filling.add(e.line)
		q.taken = e.next
		q.kept.events.Add(1)
		q.kept.bytes.Add(int64(len(e.line)))
		q.uncount(e)
		e.free()
	}
	return complete || q.batch.full(&q.filling)
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
		q.arrived.Swap(closedQueue)
		q.drops.Add(float64(q.events.Load()))
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
		if q.arrived.Load() == nil && len(q.filling.ends) == 0 {
			continue // already sent
		}
		wait := q.batch.wait
		if q.batch.eager {
			wait -= time.Since(last)
		}
		q.sendBatches(sending, q.waitDue(ctx, wait))
		last = time.Now()
	}
	q.take(q.arrived.Swap(closedQueue))
	q.sendBatches(sending, true)
}

// waitDue waits until a batch is complete, and takes the events that have arrived until then. incomplete reports that wait has passed
// or ctx has ended, so that the last batch need not be complete.
func (q *queue) waitDue(ctx context.Context, wait time.Duration) (incomplete bool) {
	if wait <= 0 {
		q.takeArrived()
		return true
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	for {
		if q.enough() {
			q.takeArrived()
			if q.fill() {
				return false
			}
		}
		select {
		case <-ctx.Done():
			q.takeArrived()
			return true
		case <-over.C:
			q.takeArrived()
			return true
		case <-q.wake: // for the first event, or for enough of them
		}
	}
}

// sendBatches sends the events that were taken, except for an incomplete last batch if incomplete is false. If there are other
// events, it signals wake.
func (q *queue) sendBatches(ctx context.Context, incomplete bool) {
	for ctx.Err() == nil {
		if complete := q.fill(); !complete && (!incomplete || len(q.filling.ends) == 0) {
			break
		}
		events := len(q.filling.ends)
		written, err := q.sink.send(ctx, &q.filling)
		q.report(written, events-written, err)
		q.emptyBatch()
	}
	if q.arrived.Load() != nil || len(q.filling.ends) > 0 {
		q.signal()
	}
}

// emptyBatch prepares the batch for other events. It keeps the memory unless it is large.
func (q *queue) emptyBatch() {
	b := &q.filling
	if b.text, b.ends = b.text[:0], b.ends[:0]; cap(b.text) > maxKept {
		b.text = nil
	}
	q.kept.events.Store(0)
	q.kept.bytes.Store(0)
}

// report counts events. It logs once when events begin to be lost and once when events are written again.
func (q *queue) report(written, lost int, err error) {
	q.sent.Add(float64(written))
	q.drops.Add(float64(lost))
	q.reporting.Lock()
	before := q.lastErr
	q.lastErr = err
	total := q.lost.Add(int64(lost))
	if err == nil {
		q.lost.Add(-total)
	}
	q.reporting.Unlock()
	switch {
	case err != nil && before == nil:
		q.log.Error("failed to write audit events", zap.String("sink", q.name), zap.Error(err))
	case err == nil && total > 0:
		q.log.Warn("audit events were lost; the sink accepts events again", zap.String("sink", q.name), zap.Int64("lost", total))
	}
}

// batch holds events in a single buffer, one per line.
type batch struct {
	text []byte
	ends []int // end of each event, including its line feed
}

// maxKept is the maximum size of a batch that is kept for reuse.
const maxKept = 2 * maxWriteBytes

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
