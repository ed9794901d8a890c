package server

import (
	"context"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico.dev/internal/filters"
	"portico.dev/internal/request"
	"portico.dev/internal/respond"
)

// Drainer counts the requests in flight and ends them at shutdown. Ordinary requests may finish, long-running ones
// (watches, logs) are ended cleanly, and new ones are refused with a hint to retry.
type Drainer struct {
	draining atomic.Bool
	counts   []requestCount // their sum is the number of requests in flight
	idle     chan struct{}  // closed when draining and no request is in flight

	mu             sync.Mutex                      // guards the fields below, but ending may be read without it
	ending         atomic.Pointer[context.Context] // parent of the contexts of long-running requests; canceled by Drain, EndLongRunning and Shed
	endLongRunning context.CancelFunc
	idleClosed     bool

	// If leaving or shedding is true, every response makes its client use another connection.
	leaving, shedding atomic.Bool
}

// requestCount is a part of the number of requests in flight. Requests are spread over the parts, so that processors rarely write
// the same memory.
type requestCount struct {
	drainer *Drainer
	n       atomic.Int64
	_       [128 - 16]byte // two cache lines, because they are prefetched in pairs
}

// NewDrainer returns a Drainer with no request in flight.
func NewDrainer() *Drainer {
	d := &Drainer{idle: make(chan struct{}), counts: make([]requestCount, runtime.NumCPU())}
	for i := range d.counts {
		d.counts[i].drainer = d
	}
	d.renewEnding()
	return d
}

func (d *Drainer) renewEnding() {
	ctx, cancel := context.WithCancel(context.Background())
	d.ending.Store(&ctx)
	d.endLongRunning = cancel
}

// Leave makes the clients of all further requests use other connections, by Connection: close on HTTP/1.1 and GOAWAY
// on HTTP/2. A load balancer that has noticed that this server is about to stop sends them to other servers, and no
// request arrives on a connection that is being closed.
func (d *Drainer) Leave() { d.leaving.Store(true) }

// EndLongRunning ends watches and logs. Further requests are served, but long-running ones end immediately.
func (d *Drainer) EndLongRunning() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.endLongRunning()
}

// Shed ends the current watches and logs, and makes clients use other connections until Keep is called. The server
// still serves requests. Shed is for a server that other replicas can replace.
func (d *Drainer) Shed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shedding.Store(true)
	if (*d.ending.Load()).Err() == nil {
		d.endLongRunning()
		d.renewEnding()
	}
}

// Keep reverts Shed.
func (d *Drainer) Keep() { d.shedding.Store(false) }

// Drain refuses new requests, ends long-running ones, and waits until no request is in flight or ctx is done.
func (d *Drainer) Drain(ctx context.Context) error {
	d.draining.Store(true)
	d.EndLongRunning()
	d.closeIfIdle()
	select {
	case <-d.idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// busy reports whether requests are in flight. While draining, it may count a request that is being refused.
func (d *Drainer) busy() bool {
	var n int64
	for i := range d.counts {
		n += d.counts[i].n.Load()
	}
	return n > 0
}

// closeIfIdle is called while draining, after each request. A request ends in the part in which it began, and none begins while
// draining, so that the sum is 0 only if no request is left.
func (d *Drainer) closeIfIdle() {
	if d.busy() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.idleClosed {
		d.idleClosed = true
		close(d.idle)
	}
}

// begin counts a request, and returns the parent context of long-running ones. It fails while draining. The caller must call the
// count's end.
func (d *Drainer) begin() (counted *requestCount, ending context.Context, ok bool) {
	counted = &d.counts[rand.IntN(len(d.counts))]
	counted.n.Add(1)
	if d.draining.Load() {
		counted.end()
		return nil, nil, false
	}
	return counted, *d.ending.Load(), true
}

func (c *requestCount) end() {
	c.n.Add(-1)
	if c.drainer.draining.Load() {
		c.drainer.closeIfIdle()
	}
}

// drainStep is the filters.Step of the filter.
type drainStep struct{ *requestCount }

// End implements filters.Step.
func (s drainStep) End(any) { s.end() }

var closeConnection = []string{"close"} // shared; never modified

func (d *Drainer) filter() func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			counted, ending, ok := d.begin()
			if !ok {
				w.Header().Set("Connection", "close")
				refusal := apierrors.NewServiceUnavailable("the front door is shutting down")
				refusal.ErrStatus.Details = retryAfter(1)
				respond.Error(w, r, refusal)
				return
			}
			filters.AtEnd(r.Context(), drainStep{counted})
			if (d.leaving.Load() || d.shedding.Load()) && r.Header["Upgrade"] == nil {
				w.Header()["Connection"] = closeConnection
			}
			recordFrom(r.Context()).Draining = ending
			info, _ := requestInfo(r.Context())
			// An upgraded stream (a console, a port-forward) has no clean end, so it may use the whole grace period.
			if request.LongRunning(info) && r.Header.Get("Upgrade") == "" {
				ctx, cancel := context.WithCancel(r.Context())
				stop := context.AfterFunc(ending, cancel)
				filters.AtEnd(ctx, filters.StepFunc(func(any) { stop(); cancel() }))
				r = r.WithContext(ctx)
			}
			next.ServeHTTP(w, r)
		})
	}
}
