package server

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"sync/atomic"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"portico.dev/internal/filters"
	"portico.dev/internal/httpmsg"
	"portico.dev/internal/request"
	"portico.dev/internal/run/processors"
)

// requestContext is the context of a request in the chain, with the state that only the filters and the local groups
// need: the record for log and audit, the response writer, the audit event. It is one allocation for each request.
type requestContext struct {
	filters.Context
	record   filters.Record
	response response
	access   access       // what is logged of the request
	audit    requestAudit // the audit events of the request

	request          filters.Request              // what handlers get
	local            *localRequest                // what the library needs that serves the local groups; nil: they do not serve it
	authWarnings     authWarnings                 // what authentication warns of
	attributes       *authorizer.AttributesRecord // what the authorizer is asked, before impersonation; nil: not known yet
	attributesBuffer authorizer.AttributesRecord  // room for attributes
}

type requestContextKey struct{}

// newRequestContext makes the context of a request that begins, and the request with it, which may be r itself. The context of r may
// belong to another request, for which this one is made within the server; that one's requestContext is not touched.
func newRequestContext(r *http.Request) (*requestContext, *http.Request) {
	c := &requestContext{}
	c.Context.Context = request.Context{Context: r.Context(), RemoteAddr: r.RemoteAddr}
	// Our HTTP/2 server makes a request for its handler alone, and does not touch it again. Over HTTP/1.1 a request gets its trailers later.
	if _, ours := r.Context().(*httpmsg.Context); ours && r.ProtoMajor == 2 {
		*r = *r.WithContext(c)
		return c, r
	}
	return c, r.WithContext(c)
}

// requestContextOf returns the context of r, and r with a new one when it had none.
func requestContextOf(r *http.Request) (*requestContext, *http.Request) {
	if c, ok := requestContextFrom(r.Context()); ok {
		return c, r
	}
	return newRequestContext(r)
}

func requestContextFrom(ctx context.Context) (*requestContext, bool) {
	if c, ok := ctx.(*requestContext); ok { // nearly always
		return c, true
	}
	c, ok := ctx.Value(requestContextKey{}).(*requestContext)
	return c, ok
}

// requestInfo is apirequest.RequestInfoFrom, faster.
func requestInfo(ctx context.Context) (*apirequest.RequestInfo, bool) {
	if c, ok := ctx.(*requestContext); ok && c.Info != nil { // nearly always
		return c.Info, true
	}
	return apirequest.RequestInfoFrom(ctx)
}

// requestUser is apirequest.UserFrom, faster.
func requestUser(ctx context.Context) (user.Info, bool) {
	if c, ok := ctx.(*requestContext); ok && c.User != nil {
		return c.User, true
	}
	return apirequest.UserFrom(ctx)
}

// Value implements context.Context.
func (c *requestContext) Value(key any) any {
	switch {
	case key == requestContextKey{}:
		return c
	case key == libraryKeys.audit:
		if events := c.auditContext(); events != nil {
			return events
		}
		return nil // never the one of another request
	case key == libraryKeys.latencies && c.local != nil:
		return &c.local.latencies.LatencyTrackers
	case key == libraryKeys.warnings && c.local != nil:
		return &c.local.warnings
	case key == libraryKeys.warnings && c.User == nil:
		return &c.authWarnings
	}
	return c.Context.Value(key)
}

// libraryKeys are the keys of k8s.io/apiserver for what it needs to serve the local groups. It does not export them.
var libraryKeys = func() (keys struct{ audit, latencies, warnings any }) {
	keys.audit = request.KeyOf(func(ctx context.Context) { audit.AuditContextFrom(ctx) })
	keys.latencies = request.KeyOf(func(ctx context.Context) { apirequest.LatencyTrackersFrom(ctx) })
	keys.warnings = request.KeyOf(func(ctx context.Context) { warning.AddWarning(ctx, "", "-") })
	return keys
}()

// requestFrom returns r with what the chain has found out about it. Outside of a chain nobody reads what is recorded.
func requestFrom(r *http.Request) *filters.Request {
	ctx := r.Context()
	c, ok := requestContextFrom(ctx)
	if !ok {
		c = &requestContext{}
		c.AuditID = request.AuditID(ctx)
	}
	c.request = c.Context.Request(r, &c.record, &c.response)
	return &c.request
}

// recordFrom never returns nil: outside the chain nobody reads what is recorded.
func recordFrom(ctx context.Context) *filters.Record {
	if c, ok := requestContextFrom(ctx); ok {
		return &c.record
	}
	return &filters.Record{}
}

// response records what was answered. It flushes and reports a client that is gone, as the library that serves the
// local groups expects of any writer.
type response struct {
	filters.Response

	ctx         *requestContext
	slowClients *slowClients  // nil: not tracked
	slow        *slowResponse // its entry there, which slowClients guards; nil: it has had none
	listed      atomic.Bool   // slow is set
	flushed     atomic.Bool

	withhold func() bool // withheld.go; nil: nothing is
	withheld bool
}

// Continue has rest called when the handler has returned, as filters.Continue says. False: the server cannot do that.
func (w *response) Continue(rest func()) bool {
	s, ok := w.ResponseWriter.(interface{ Continue(rest func()) })
	if ok {
		s.Continue(func() {
			defer w.slowClients.forget(w)
			rest()
		})
	}
	return ok
}

// hijackable is a response over HTTP/1.1, whose connection can be taken over for an upgrade. HTTP/2 has no such thing,
// so its writers must not claim it.
type hijackable struct{ *response }

// wrap makes w the response to to's client, and returns the writer for the chain.
func (w *response) wrap(to http.ResponseWriter, r *http.Request) http.ResponseWriter {
	w.ResponseWriter = to
	if _, ok := to.(http.Hijacker); ok && r.ProtoMajor == 1 {
		return hijackable{w}
	}
	return w
}

// Write implements http.ResponseWriter.
func (w *response) Write(p []byte) (int, error) {
	if w.withheld {
		return len(p), nil
	}
	w.SetCode(http.StatusOK)
	if !w.flushed.Load() && w.Bytes+int64(len(p)) <= engineBuffer {
		return w.Response.Write(p)
	}
	processors.Asked()
	w.slowClients.writing(w, len(p))
	defer w.slowClients.written(w)
	return w.Response.Write(p)
}

// engineBuffer is how much of a body every engine keeps until its handler returns or flushes: such writes wait for no client.
const engineBuffer = 2 << 10

// Flush implements http.Flusher.
func (w *response) Flush() {
	if w.withheld {
		return
	}
	w.SetCode(http.StatusOK)
	w.flushed.Store(true)
	w.slowClients.writing(w, 0)
	defer w.slowClients.written(w)
	w.Response.Flush()
}

// CloseNotify is asked for by name by k8s.io/apiserver/pkg/endpoints/responsewriter.
func (w *response) CloseNotify() <-chan bool {
	if n, ok := w.ResponseWriter.(interface{ CloseNotify() <-chan bool }); ok {
		return n.CloseNotify()
	}
	return make(chan bool) // never: the request's context tells the same
}

// Hijack implements http.Hijacker.
func (w hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.TakeConnection() }
