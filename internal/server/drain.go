package server

import (
	"context"
	"net/http"
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
	mu       sync.Mutex // guards the fields up to endLongRunning
	draining bool
	inFlight int
	idle     chan struct{} // closed when draining and no request is in flight

	ending         context.Context // parent of the contexts of long-running requests; canceled by Drain, EndLongRunning and Shed
	endLongRunning context.CancelFunc

	// If leaving or shedding is true, every response makes its client use another connection.
	leaving, shedding atomic.Bool
}

// NewDrainer returns a Drainer with no request in flight.
func NewDrainer() *Drainer {
	d := &Drainer{idle: make(chan struct{})}
	d.ending, d.endLongRunning = context.WithCancel(context.Background())
	return d
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
	if d.ending.Err() == nil {
		d.endLongRunning()
		d.ending, d.endLongRunning = context.WithCancel(context.Background())
	}
}

// Keep reverts Shed.
func (d *Drainer) Keep() { d.shedding.Store(false) }

// Drain refuses new requests, ends long-running ones, and waits until no request is in flight or ctx is done.
func (d *Drainer) Drain(ctx context.Context) error {
	d.mu.Lock()
	if !d.draining {
		d.draining = true
		if d.inFlight == 0 {
			close(d.idle)
		}
	}
	d.endLongRunning()
	d.mu.Unlock()
	select {
	case <-d.idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// busy reports whether requests are in flight.
func (d *Drainer) busy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.inFlight > 0
}

// begin counts a request, and returns the parent context of long-running ones. It fails while draining.
func (d *Drainer) begin() (ending context.Context, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.draining {
		return nil, false
	}
	d.inFlight++
	return d.ending, true
}

func (d *Drainer) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inFlight--
	if d.draining && d.inFlight == 0 {
		close(d.idle)
	}
}

// drainStep is the filters.Step of the filter.
type drainStep struct{ *Drainer }

// End implements filters.Step.
func (s drainStep) End(any) { s.end() }

var closeConnection = []string{"close"} // shared; never modified

func (d *Drainer) filter() func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ending, ok := d.begin()
			if !ok {
				w.Header().Set("Connection", "close")
				refusal := apierrors.NewServiceUnavailable("the front door is shutting down")
				refusal.ErrStatus.Details = retryAfter(1)
				respond.Error(w, r, refusal)
				return
			}
			filters.AtEnd(r.Context(), drainStep{d})
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
