package filters

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/request"
	"portico.dev/internal/run"
)

// Request is a request that has passed the filters, with what they have found out about it. Handlers get it as a parameter, so that they need not
// look into contexts. Only the goroutine that serves the request uses it.
type Request struct {
	*http.Request
	Info        *apirequest.RequestInfo // empty outside of a chain
	LongRunning bool                    // by verb and subresource, as kube-apiserver decides it
	User        user.Info               // after impersonation; nil: none is known
	UserName    string                  // of User
	AuditID     string
	Record      *Record
	Client      Client          // who gets the response
	Connected   context.Context // ends when the client disconnects; has no deadline
	chain       *Context        // of the chain; nil outside of one
}

// Client is the response of a chain to its client, whatever writers handlers put before it.
type Client interface {
	// Is reports whether a writer is that of the client. Who serves a response through another one has to do something when it is over, so
	// that the response must not go on after the handler.
	Is(w http.ResponseWriter) bool
	// SetLongRunning lets the client read the response whenever it likes.
	SetLongRunning()
	// Withhold keeps a response back that begins with 503 when lost is true. Release ends that, and reports whether there was one. Another
	// one may then be written.
	Withhold(lost func() bool)
	Release() bool
}

// noClient is the Client of a request outside of a chain.
type noClient struct{}

func (noClient) Is(http.ResponseWriter) bool { return false }
func (noClient) SetLongRunning()             {}
func (noClient) Withhold(func() bool)        {}
func (noClient) Release() bool               { return false }

// Request returns r with what its context says about it, which is c or was made from c.
func (c *Context) Request(r *http.Request, record *Record, client Client) Request {
	ctx := r.Context()
	out := Request{Request: r, Info: c.Info, User: c.User, AuditID: c.AuditID, Record: record, Client: client, Connected: ctx, chain: c}
	if own, ok := ctx.(interface{ filtersContext() *Context }); !ok || own.filtersContext() != c {
		out.Info, _ = apirequest.RequestInfoFrom(ctx)
		out.User, _ = apirequest.UserFrom(ctx) // another one after impersonation
	}
	if c.HasDeadline() {
		out.Connected = c.Context.Context
	}
	out.complete()
	return out
}

// AtEnd has step called when the request is over, as the function of that name. It panics outside of a chain.
func (r *Request) AtEnd(step Step) { r.chain.AtEnd(step) }

// Continue has rest called when the handler has returned, as the function of that name. It panics outside of a chain.
func (r *Request) Continue(rest func()) { r.chain.rest = rest }

// RequestOf returns r with what its context says about it. What is recorded of it, nobody reads.
func RequestOf(r *http.Request) *Request {
	ctx := r.Context()
	out := &Request{Request: r, AuditID: request.AuditID(ctx), Record: &Record{}, Client: noClient{}, Connected: request.ClientContext(ctx)}
	out.chain, _ = ctx.Value(contextKey{}).(*Context)
	out.Info, _ = apirequest.RequestInfoFrom(ctx)
	out.User, _ = apirequest.UserFrom(ctx)
	out.complete()
	return out
}

// complete sets the fields that follow from others.
func (r *Request) complete() {
	if r.Info == nil {
		r.Info = &apirequest.RequestInfo{}
	}
	r.LongRunning = request.LongRunning(r.Info)
	if r.User != nil {
		r.UserName = r.User.GetName()
	}
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

	Elsewhere bool // the backend gave no response, and another server was asked

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

// Admitted records the concurrency slot of the backend, which the request has until it is over. Whoever finds that the client does not read
// the response may stall it.
func (rec *Record) Admitted(s Slot) { rec.BackendSlot = s }

// Attempted records the endpoint that is being tried, and how many attempts there are with this one.
func (rec *Record) Attempted(endpoint string, number int) {
	rec.Endpoint, rec.Attempts = endpoint, number
}

// Failed records the message that the client is told, or would be, had its response not begun.
func (rec *Record) Failed(text string) { rec.Failure = text }

// LongRunning records that what follows may go on for long: a watch, a log or a console has begun.
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
