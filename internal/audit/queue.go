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
	// lastWords is how long a sink may take, once asked to stop, to write what is queued.
	lastWords = 5 * time.Second
)

// sink is where encoded events go. Only one goroutine calls it.
type sink interface {
	// send writes the events of one batch. It returns how many were written, and why the others were not.
	send(ctx context.Context, events [][]byte) (written int, err error)
	// close gives up what the sink holds.
	close() error
}

// queue stands between requests and a sink.
type queue struct {
	name  string
	sink  sink
	batch batching
	log   *zap.Logger
	drops prometheus.Counter
	sent  prometheus.Counter

	mu      sync.Mutex // guards what follows
	waiting [][]byte
	bytes   int
	closed  bool
	trouble error // why the last batch was lost; nil: it was not
	lost    int   // events lost since the last batch that was sent

	arrived chan struct{} // holds a value while something is waiting
}

// batching says when a batch is due.
type batching struct {
	// size is how many events make a batch. wait is how long the first of them waits for the others; zero sends what
	// there is.
	size int
	wait time.Duration
}

func newQueue(name string, s sink, b batching, m *metrics.Audit, log *zap.Logger) *queue {
	return &queue{
		name: name, sink: s, batch: b, log: log, arrived: make(chan struct{}, 1),
		drops: m.Dropped.WithLabelValues(name), sent: m.Written.WithLabelValues(name),
	}
}

// offer takes an event unless there is no room for it.
func (q *queue) offer(event []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.bytes+len(event) > maxQueued {
		q.lost++
		q.drops.Inc()
		return
	}
	q.waiting = append(q.waiting, event)
	q.bytes += len(event)
	if len(q.waiting) == 1 || len(q.waiting) == q.batch.size {
		select {
		case q.arrived <- struct{}{}:
		default:
		}
	}
}

// take is the next batch, and whether more is waiting behind it.
func (q *queue) take() (events [][]byte, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.waiting), q.batch.size)
	events = q.waiting[:n:n]
	q.waiting = q.waiting[n:]
	if len(q.waiting) == 0 {
		q.waiting = nil
	}
	for _, e := range events {
		q.bytes -= len(e)
	}
	return events, len(q.waiting) > 0
}

func (q *queue) full() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting) >= q.batch.size
}

// run sends batches until ctx ends, and then what is left, within lastWords. A sink that hangs in a system call cannot be
// stopped; it is left behind, and said so, rather than holding the whole server.
func (q *queue) run(ctx context.Context) error {
	sending, hurry := context.WithCancel(context.WithoutCancel(ctx))
	defer hurry()
	done := make(chan error, 1)
	go func() {
		q.follow(ctx, sending)
		done <- q.sink.close()
	}()
	<-ctx.Done()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("audit %s: %w", q.name, err)
		}
	case <-time.After(lastWords):
		q.drops.Add(float64(q.refuse()))
		q.log.Error("audit sink hangs; events that it was given are lost", zap.String("sink", q.name))
	}
	return nil
}

// follow sends what arrives until ctx ends, and what is left then, as long as sending lasts.
func (q *queue) follow(ctx, sending context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-q.arrived:
		}
		if q.batch.wait > 0 && !q.full() {
			select {
			case <-ctx.Done():
			case <-q.arrived:
			case <-time.After(q.batch.wait):
			}
		}
		q.drain(sending)
	}
	q.refuse()
	q.drain(sending)
}

// refuse takes no further events, and returns how many are still waiting.
func (q *queue) refuse() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	return len(q.waiting)
}

func (q *queue) drain(ctx context.Context) {
	for more := true; more && ctx.Err() == nil; {
		var events [][]byte
		if events, more = q.take(); len(events) > 0 {
			written, err := q.sink.send(ctx, events)
			q.report(written, len(events)-written, err)
		}
	}
}

// report keeps count, and tells the log once when events begin to be lost and once when that has ended.
func (q *queue) report(written, lost int, err error) {
	q.sent.Add(float64(written))
	q.drops.Add(float64(lost))
	q.mu.Lock()
	before := q.trouble
	q.trouble = err
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
