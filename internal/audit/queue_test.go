package audit

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"portico.dev/internal/metrics"
)

// memory records each batch.
type memory struct {
	gate    chan struct{} // Each batch waits for it; nil: no wait.
	mu      sync.Mutex    // guards batches
	batches [][]string
}

func (m *memory) send(_ context.Context, b *batch) (int, error) {
	if m.gate != nil {
		<-m.gate
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var events []string
	for n := range b.ends {
		events = append(events, string(b.event(n)))
	}
	m.batches = append(m.batches, events)
	return len(b.ends), nil
}

func (m *memory) close() error { return nil }

func (m *memory) said() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprint(m.batches)
}

// running returns a queue that runs until stop is called.
func running(t *testing.T, s sink, b batching) (q *queue, m *metrics.Audit, stop func()) {
	t.Helper()
	m = metrics.NewAudit(prometheus.NewRegistry())
	q = newQueue("log", s, b, m, zap.NewNop())
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := q.run(ctx); err != nil {
			t.Error(err)
		}
	})
	return q, m, func() { cancel(); wg.Wait() }
}

func offer(q *queue, events ...string) {
	for _, e := range events {
		q.enqueue(&queued{line: []byte(e + "\n")})
	}
}

func TestFirstEventIsWrittenAtOnceAndLaterOnesInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := &memory{}
		q, _, stop := running(t, said, logBatching)
		expect := func(when, want string) {
			t.Helper()
			synctest.Wait()
			if got := said.said(); got != want {
				t.Errorf("%s: batches = %.300s, want %s", when, got, want)
			}
		}
		offer(q, "a")
		expect("an event that comes alone", "[[a]]")
		time.Sleep(logInterval / 4)
		offer(q, "b", "c")
		expect("soon after it", "[[a]]")
		time.Sleep(logInterval)
		expect("after the pause", "[[a] [b c]]")
		time.Sleep(10 * logInterval)
		offer(q, "d")
		expect("alone again", "[[a] [b c] [d]]")
		offer(q, "e", "f")
		stop()
		expect("what waited at the end", "[[a] [b c] [d] [e f]]")
	})
}

func TestFullBatchIsWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, b := range map[string]batching{
			"by number": {maxEvents: 3, wait: time.Hour}, "by bytes": {maxBytes: 27, wait: time.Hour},
		} {
			said := &memory{}
			q, _, stop := running(t, said, b)
			for n := range 9 {
				offer(q, fmt.Sprintf("event-%d-", n)) // of nine bytes
			}
			synctest.Wait()
			if got := len(said.batches); got != 3 {
				t.Errorf("%s: %d batches without waiting, want 3: %v", name, got, said.batches)
			}
			offer(q, "event-9-")
			synctest.Wait()
			if got := len(said.batches); got != 3 {
				t.Errorf("%s: batches after one more event = %v, want 3", name, said.batches)
			}
			stop()
			if got := strings.Fields(said.said()); len(got) != 10 || len(said.batches) != 4 {
				t.Errorf("%s: batches at the end = %v, want 10 events in 4 batches", name, said.batches)
			}
		}
	})
}

// Events that arrive during a write are written too, for any number of batches and without later events.
func TestEventsQueuedDuringWritesAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := &memory{gate: make(chan struct{})}
		q, _, stop := running(t, said, batching{maxEvents: 1})
		offer(q, "a")
		synctest.Wait() // The write is in progress.
		offer(q, "b", "c", "d")
		said.gate <- struct{}{}
		synctest.Wait() // The write of b is in progress, and two more batches follow.
		offer(q, "e")
		close(said.gate)
		synctest.Wait()
		if got := said.said(); got != "[[a] [b] [c] [d] [e]]" {
			t.Errorf("batches = %s, want [[a] [b] [c] [d] [e]]", got)
		}
		stop()
	})
}

// In all interleavings each event is either written completely, once and in order, or counted as dropped.
func TestEachEventIsWrittenOrCountedAsDropped(t *testing.T) {
	said := &memory{}
	q, m, stop := running(t, said, batching{maxBytes: 1 << 10})
	const writers, each = 8, 2000
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := range each {
				offer(q, fmt.Sprintf("%d %d %s", w, n, strings.Repeat("x", n%97)))
			}
		})
	}
	wg.Wait()
	stop()
	offer(q, "after the end")
	next := [writers]int{}
	for _, batch := range said.batches {
		for _, event := range batch {
			var w, n int
			if _, err := fmt.Sscanf(event, "%d %d", &w, &n); err != nil || n != next[w] || !strings.HasSuffix(event, strings.Repeat("x", n%97)) {
				t.Fatalf("event = %q, error %v, want event %d of its writer", event, err, next[w])
			}
			next[w]++
		}
	}
	written, dropped := testutil.ToFloat64(m.Written.WithLabelValues("log")), testutil.ToFloat64(m.Dropped.WithLabelValues("log"))
	if written != writers*each || dropped != 1 {
		t.Errorf("%v events written, %v dropped, want %d and 1", written, dropped, writers*each)
	}
}

// The memory kept for reuse is small. An empty queue has its full capacity.
func TestQueueMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &slow{until: make(chan struct{})}
		q, m, stop := running(t, h, logBatching)
		line := bytes.Repeat([]byte("x"), maxWriteBytes/2)
		offered := 0
		for ; testutil.ToFloat64(m.Dropped.WithLabelValues("log")) == 0; offered++ {
			q.enqueue(&queued{line: bytes.Clone(line)})
			synctest.Wait()
		}
		if n := q.bytes.Load(); n > maxQueued || n < maxQueued-maxWriteBytes {
			t.Errorf("queue holds %d bytes, want %d to %d", n, maxQueued-maxWriteBytes, maxQueued)
		}
		close(h.until)
		synctest.Wait()
		stop()
		if n := q.events.Load(); q.bytes.Load() != 0 || n != 0 || cap(q.filling.text) > maxKept {
			t.Errorf("empty queue = %d bytes, %d events, %d bytes for reuse, want 0, 0 and at most %d", q.bytes.Load(), n, cap(q.filling.text), maxKept)
		}
		if n := testutil.ToFloat64(m.Written.WithLabelValues("log")); int(n) != offered-1 {
			t.Errorf("%v events written, want %d", n, offered-1)
		}
	})
}

// slow accepts batches after a delay.
type slow struct{ until chan struct{} }

func (s *slow) send(_ context.Context, b *batch) (int, error) {
	<-s.until
	return len(b.ends), nil
}
func (s *slow) close() error { return nil }
