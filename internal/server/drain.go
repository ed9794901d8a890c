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

// Drainer counts the requests in flight and brings them to an end at shutdown: ordinary ones may finish, long-running
// ones (watches, logs) are ended cleanly, and new ones are told to come back.
type Drainer struct {
	mu       sync.Mutex // protects the rest
	draining bool
	inFlight int
	idle     chan struct{} // closed when draining and nothing is in flight

	ending         context.Context // ends with the drain, or with Shed; long-running requests live under it
	endLongRunning context.CancelFunc

	// leaving, and shedding: every response asks its client to come by another connection.
	leaving, shedding atomic.Bool
}

// NewDrainer returns a Drainer with no request in flight.
func NewDrainer() *Drainer {
	d := &Drainer{idle: make(chan struct{})}
	d.ending, d.endLongRunning = context.WithCancel(context.Background())
	return d
}

// Leave asks the clients of all further requests to come by other connections: with Connection: close on HTTP/1.1, and GOAWAY on
// HTTP/2. So a load balancer that knows that this server is about to stop sends them elsewhere, and no request meets the end
// of a connection.
func (d *Drainer) Leave() { d.leaving.Store(true) }

// EndLongRunning ends watches and logs. Further requests are served; those that run for long end at once.
func (d *Drainer) EndLongRunning() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.endLongRunning()
}

// Shed ends the watches and logs that are under way, and asks clients to come by other connections until Keep. Requests are
// served on. It is for a server that others can stand in for.
func (d *Drainer) Shed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shedding.Store(true)
	if d.ending.Err() == nil {
		d.endLongRunning()
		d.ending, d.endLongRunning = context.WithCancel(context.Background())
	}
}

// Keep takes back Shed.
func (d *Drainer) Keep() { d.shedding.Store(false) }

// Drain refuses new requests, ends long-running ones, and waits until none is in flight or ctx ends.
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

// begin counts a request, and returns the context that long-running ones live under.
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

// drainStep is the Step of the filter.
type drainStep struct{ *Drainer }

// End implements filters.Step.
func (s drainStep) End(any) { s.end() }

var closeConnection = []string{"close"} // shared, and never written to

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
			// An upgraded stream (a console, a port-forward) has no clean end that we could give it: it gets the grace.
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
