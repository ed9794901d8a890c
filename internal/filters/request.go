package filters

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/run"
)

// Request is a request that has passed the filters, with what they have found out about it. Handlers get it as a parameter, so that they need not
// look into contexts. Only the goroutine that serves the request uses it.
type Request struct {
	*http.Request
	Info    *apirequest.RequestInfo // nil outside of a chain
	User    user.Info               // after impersonation; nil: none is known
	AuditID string
	Record  *Record
}

// IsResource reports whether it is for a resource.
func (r *Request) IsResource() bool { return r.Info != nil && r.Info.IsResourceRequest }

// UserName returns the name of the user; empty: none is known.
func (r *Request) UserName() string {
	if r.User == nil {
		return ""
	}
	return r.User.GetName()
}

// Record is what is learned of one request, for the log, the metrics and the audit event. Only the goroutine that serves the request uses it.
type Record struct {
	Started      time.Time
	Ended        time.Time // zero: not yet, or the time was not read then
	User         user.Info // the authenticated user, before impersonation
	Credential   string    // the kind of credential that was accepted; empty: none
	Impersonated user.Info // the impersonated user, if any
	Constraint   string    // the verb that allowed it, when it was one of KEP-5284
	Decision     string    // allow or forbid
	Reason       string    // the authorizer's
	ServedBy     string    // "local", "discovery", or the name of an APIService

	Endpoint string // of the backend, tried last
	Attempts int    // to reach one
	Failure  string // the message that the client got when a backend failed the request

	Waited        time.Duration         // for its seat
	IsLongRunning bool                  // it was found to be long-running, by its APIService or by being upgraded
	Seat          Seat                  // its seat among the requests served at once; nil: it has none
	Releases      *run.DelayQueue[Seat] // releases the seat of a proxied request after a while; nil: at once
	release       run.Delayed[Seat]     // the entry of the request in it
	Proxied       bool                  // it is for a backend
	BackendSlot   Slot                  // among the concurrent requests of its backend; nil: it has none
	Draining      context.Context       // ends when long-running requests must
}

// Seat is a seat among the requests that are served at once.
type Seat interface {
	// Release gives the seat back. Where a DelayQueue may call it too, it is safe to repeat.
	Release()
}

// Slot is a concurrency slot of a backend.
type Slot interface {
	// Stall gives the slot back while the client does not read, and reports whether there was room for that.
	Stall() bool
}

// EndTime is when the request was over: what was recorded, or now.
func (rec *Record) EndTime() time.Time {
	if rec.Ended.IsZero() {
		rec.Ended = time.Now()
	}
	return rec.Ended
}

// Admitted implements proxy.Observer.
func (rec *Record) Admitted(s Slot) { rec.BackendSlot = s }

// Attempted implements proxy.Observer.
func (rec *Record) Attempted(endpoint string, number int) {
	rec.Endpoint, rec.Attempts = endpoint, number
}

// Failed implements proxy.Observer.
func (rec *Record) Failed(text string) { rec.Failure = text }

// LongRunning implements proxy.Observer.
func (rec *Record) LongRunning() { rec.IsLongRunning = true }

// ReleaseSeat lets another request in before this one is over.
func (rec *Record) ReleaseSeat() {
	if rec.Seat != nil {
		rec.Seat.Release()
		rec.Seat = nil
	}
}

// HoldSeat releases the seat of a request that was handed to a backend: after a while, or at once when that is
// configured or the request is long-running. CancelSeatRelease follows when the request is over.
func (rec *Record) HoldSeat(long bool) {
	if rec.Seat == nil || rec.Releases == nil || long {
		rec.ReleaseSeat()
		return
	}
	rec.Releases.Add(&rec.release, rec.Seat, time.Now())
}

// CancelSeatRelease follows HoldSeat when the request is over.
func (rec *Record) CancelSeatRelease() {
	if rec.Releases != nil {
		rec.Releases.Remove(&rec.release)
	}
}
