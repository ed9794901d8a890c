package filters

import (
	"context"
	"net/http"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/request"
	"portico.dev/internal/run"
)

// Request is a request that has passed the filters, with the facts that they have determined. Handlers receive it as
// a parameter, so that they do not need to look into contexts. Only the goroutine that serves the request uses it.
type Request struct {
	*http.Request
	Info        *apirequest.RequestInfo // empty outside a chain
	LongRunning bool                    // by verb and subresource, as in kube-apiserver
	User        user.Info               // after impersonation; nil if unknown
	UserName    string                  // of User
	AuditID     string
	Record      *Record
	Client      Client          // receives the response
	Connected   context.Context // ends when the client disconnects; has no deadline
	chain       *Context        // nil outside a chain
}

// Client is the response of a chain to its client, below the writers that handlers add.
type Client interface {
	// Is reports whether w is the client's writer. A handler that serves a response through another writer has work
	// to do after it, so that the response must not continue after the handler.
	Is(w http.ResponseWriter) bool
	// SetLongRunning lets the client read the response at any pace.
	SetLongRunning()
	// Withhold withholds a response that begins with a 503 while lost returns true. Release ends this, and reports
	// whether a response was withheld. Another response may then be written.
	Withhold(lost func() bool)
	Release() bool
}

// noClient is the Client of a request outside a chain.
type noClient struct{}

func (noClient) Is(http.ResponseWriter) bool { return false }
func (noClient) SetLongRunning()             {}
func (noClient) Withhold(func() bool)        {}
func (noClient) Release() bool               { return false }

// Request returns r with the facts in its context, which is c or derived from c.
func (c *Context) Request(r *http.Request, record *Record, client Client) Request {
	ctx := r.Context()
	out := Request{Request: r, Info: c.Info, User: c.User, AuditID: c.AuditID, Record: record, Client: client, Connected: ctx, chain: c}
	if own, ok := ctx.(interface{ filtersContext() *Context }); !ok || own.filtersContext() != c {
		out.Info, _ = apirequest.RequestInfoFrom(ctx)
		out.User, _ = apirequest.UserFrom(ctx) // differs from c.User after impersonation
	}
	if c.HasDeadline() {
		out.Connected = c.Context.Context
	}
	out.complete()
	return out
}

// ClusterExtra is the key of extra that contains the name of the Cluster that a request is for. The front door writes it into users of
// requests for which it calls its own extension servers.
const ClusterExtra = "portico.dev/cluster"

// ClusterOf returns the name of the Cluster in a user's extra, or "". u may be nil.
func ClusterOf(u user.Info) string {
	if u == nil {
		return ""
	}
	return strings.Join(u.GetExtra()[ClusterExtra], ",")
}

// AtEnd registers a step, like the function AtEnd. It panics outside a chain.
func (r *Request) AtEnd(step Step) { r.chain.AtEnd(step) }

// Continue registers rest, like the function Continue. It panics outside a chain.
func (r *Request) Continue(rest func()) { r.chain.rest = rest }

// RequestOf returns r with the facts in its context. Its Record is discarded.
func RequestOf(r *http.Request) *Request {
	ctx := r.Context()
	out := &Request{Request: r, AuditID: request.AuditID(ctx), Record: &Record{}, Client: noClient{}, Connected: request.ClientContext(ctx)}
	out.chain, _ = ctx.Value(contextKey{}).(*Context)
	out.Info, _ = apirequest.RequestInfoFrom(ctx)
	out.User, _ = apirequest.UserFrom(ctx)
	out.complete()
	return out
}

// complete sets the fields that follow from other fields.
func (r *Request) complete() {
	if r.Info == nil {
		r.Info = &apirequest.RequestInfo{}
	}
	r.LongRunning = request.LongRunning(r.Info)
	if r.User != nil {
		r.UserName = r.User.GetName()
	}
}

// Record contains the facts about one request for the log, the metrics and the audit event. Only the goroutine that
// serves the request uses it.
type Record struct {
	Started      time.Time
	Ended        time.Time // zero before the end, or if the time was not recorded
	User         user.Info // the authenticated user, before impersonation
	Credential   string    // kind of the accepted credential; empty without one
	Impersonated user.Info // the impersonated user, if any
	Constraint   string    // verb of KEP-5284 that allowed the impersonation, if any
	Decision     string    // allow or forbid
	Reason       string    // the authorizer's reason
	ServedBy     string    // "local", "discovery", "cluster", or the name of an APIService
	Cluster      string    // name of the Cluster that the request is for; empty for this server
	ClusterUser  string    // name of the user in that cluster

	Endpoint string // of the backend, for the last attempt
	Attempts int    // number of attempts
	Failure  string // message to the client when a backend failed the request

	Elsewhere bool // the backend did not respond, and the request was sent to another server

	Waited        time.Duration         // time spent waiting for a seat
	IsLongRunning bool                  // long-running by its APIService, or because it was upgraded
	Seat          Seat                  // seat among the concurrent requests; nil without one
	Releases      *run.DelayQueue[Seat] // releases the seat of a proxied request after a delay; nil: at once
	release       run.Delayed[Seat]     // entry of the request in Releases
	Proxied       bool                  // the request is for a backend
	BackendSlot   Slot                  // slot among the concurrent requests of its backend; nil without one
	Draining      context.Context       // ends when long-running requests must end
}

// Seat is a seat among the concurrent requests.
type Seat interface {
	// Release returns the seat. If a DelayQueue may also call it, it is safe to call Release again.
	Release()
}

// Slot is a concurrency slot of a backend.
type Slot interface {
	// Stall releases the slot while the client does not read, and reports whether that was possible.
	Stall() bool
}

// EndTime returns the recorded end of the request. Before the end, it records the current time.
func (rec *Record) EndTime() time.Time {
	if rec.Ended.IsZero() {
		rec.Ended = time.Now()
	}
	return rec.Ended
}

// Admitted records the concurrency slot of the backend, which the request holds until it is over. The slot is stalled
// while the client does not read the response.
func (rec *Record) Admitted(s Slot) { rec.BackendSlot = s }

// Attempted records the endpoint of the current attempt, and the number of attempts including this one.
func (rec *Record) Attempted(endpoint string, number int) {
	rec.Endpoint, rec.Attempts = endpoint, number
}

// Failed records the message that the client receives, or would have received before its response began.
func (rec *Record) Failed(text string) { rec.Failure = text }

// LongRunning records that the request is long-running: a watch, a log or a console has begun.
func (rec *Record) LongRunning() { rec.IsLongRunning = true }

// ReleaseSeat releases the seat before the request is over.
func (rec *Record) ReleaseSeat() {
	if rec.Seat != nil {
		rec.Seat.Release()
		rec.Seat = nil
	}
}

// HoldSeat releases the seat of a request that is forwarded to a backend: after a delay, or at once if Releases is
// nil or the request is long-running. CancelSeatRelease must be called when the request is over.
func (rec *Record) HoldSeat(long bool) {
	if rec.Seat == nil || rec.Releases == nil || long {
		rec.ReleaseSeat()
		return
	}
	rec.Releases.Add(&rec.release, rec.Seat, time.Now())
}

// CancelSeatRelease ends HoldSeat when the request is over.
func (rec *Record) CancelSeatRelease() {
	if rec.Releases != nil {
		rec.Releases.Remove(&rec.release)
	}
}
