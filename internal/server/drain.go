package server

import (
	"context"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico.dev/internal/request"
	"portico.dev/internal/respond"
)

// Drainer counts the requests in hand and brings them to an end at shutdown: ordinary ones may finish, long-running
// ones (watches, logs) are ended cleanly, and new ones are told to come back.
type Drainer struct {
	mu       sync.Mutex // protects the rest
	draining bool
	inHand   int
	idle     chan struct{} // closed when draining and nothing is in hand

	ending    context.Context // ends with the drain; long-running requests live under it
	endingNow context.CancelFunc
}

// NewDrainer returns a Drainer with nothing in hand.
func NewDrainer() *Drainer {
	d := &Drainer{idle: make(chan struct{})}
	d.ending, d.endingNow = context.WithCancel(context.Background())
	return d
}

// Drain refuses new requests, ends long-running ones, and waits until nothing is in hand or ctx ends.
func (d *Drainer) Drain(ctx context.Context) error {
	d.mu.Lock()
	if !d.draining {
		d.draining = true
		if d.inHand == 0 {
			close(d.idle)
		}
	}
	d.mu.Unlock()
	d.endingNow()
	select {
	case <-d.idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *Drainer) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.draining {
		return false
	}
	d.inHand++
	return true
}

func (d *Drainer) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inHand--
	if d.draining && d.inHand == 0 {
		close(d.idle)
	}
}

func (d *Drainer) filter() func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !d.enter() {
				w.Header().Set("Connection", "close")
				refusal := apierrors.NewServiceUnavailable("the front door is shutting down")
				refusal.ErrStatus.Details = retryAfter(1)
				respond.Error(w, r, refusal)
				return
			}
			defer d.leave()
			recordFrom(r.Context()).draining = d.ending
			info, _ := infoOf(r.Context())
			// An upgraded stream (a console, a port-forward) has no clean end that we could give it: it gets the grace.
			if request.LongRunning(info) && r.Header.Get("Upgrade") == "" {
				ctx, cancel := context.WithCancel(r.Context())
				defer cancel()
				defer context.AfterFunc(d.ending, cancel)()
				r = r.WithContext(ctx)
			}
			next.ServeHTTP(w, r)
		})
	}
}
