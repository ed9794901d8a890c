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
	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/request"
	"portico.dev/internal/run/processors"
)

// requestContext is the context of a request in the chain, with the state that only the filters and the local groups
// need: the record for log and audit, the response writer, the audit event. It takes one allocation per request.
type requestContext struct {
	filters.Context
	unused   bool                     // no request has this context yet
	chosen   struct{ key, value any } // of WithValue
	record   filters.Record
	response response
	access   access       // state of the access log
	audit    requestAudit // state of the audit log

	request          filters.Request              // for handlers
	local            *localRequest                // k8s.io/apiserver's state for the local groups; nil for other handlers
	authWarnings     authWarnings                 // warnings of authentication
	attributes       *authorizer.AttributesRecord // authorizer attributes before impersonation; nil until computed
	attributesBuffer authorizer.AttributesRecord  // buffer for attributes
}

type requestContextKey struct{}

// clientContext returns the context of a request that an engine has read (engine.ServerConfig.Context).
func clientContext(parent context.Context, client string) context.Context {
	c := &requestContext{unused: true}
	c.Context.Context = request.Context{Context: parent, RemoteAddr: client}
	return c
}

// newRequestContext returns the context of a new request, and the request with this context, which is r itself if an engine has
// read it. Otherwise the context of r may belong to another request, for which the server makes this one. The requestContext
// of that request does not change.
func newRequestContext(r *http.Request) (*requestContext, *http.Request) {
	if c, ok := r.Context().(*requestContext); ok && c.unused {
		c.unused = false
		return c, r
	}
	c := &requestContext{}
	c.Context.Context = request.Context{Context: r.Context(), RemoteAddr: r.RemoteAddr}
	return c, r.WithContext(c)
}

// WithValue returns a request with a value in its context, to be passed to a chain. It costs less than context.WithValue: the chain uses
// the context that an engine has made, and r does not change then.
func WithValue(r *http.Request, key, value any) *http.Request {
	if c, ok := r.Context().(*requestContext); ok && c.unused && c.chosen.key == nil {
		c.chosen.key, c.chosen.value = key, value
		return r
	}
	return r.WithContext(context.WithValue(r.Context(), key, value))
}

// requestContextOf returns the context of r, and r. If r has no requestContext, both are new.
func requestContextOf(r *http.Request) (*requestContext, *http.Request) {
	if c, ok := requestContextFrom(r.Context()); ok {
		return c, r
	}
	return newRequestContext(r)
}

func requestContextFrom(ctx context.Context) (*requestContext, bool) {
	if c, ok := ctx.(*requestContext); ok { // the common case
		return c, true
	}
	c, ok := ctx.Value(requestContextKey{}).(*requestContext)
	return c, ok
}

// requestInfo is a faster apirequest.RequestInfoFrom.
func requestInfo(ctx context.Context) (*apirequest.RequestInfo, bool) {
	if c, ok := ctx.(*requestContext); ok && c.Info != nil { // the common case
		return c.Info, true
	}
	return apirequest.RequestInfoFrom(ctx)
}

// requestUser is a faster apirequest.UserFrom.
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
	case c.chosen.key != nil && key == c.chosen.key:
		return c.chosen.value
	case key == libraryKeys.audit:
		if events := c.auditContext(); events != nil {
			return events
		}
		return nil // never the audit context of another request
	case key == libraryKeys.latencies && c.local != nil:
		return &c.local.latencies.LatencyTrackers
	case key == libraryKeys.warnings && c.local != nil:
		return &c.local.warnings
	case key == libraryKeys.warnings && c.User == nil:
		return &c.authWarnings
	}
	return c.Context.Value(key)
}

// libraryKeys are the context keys that k8s.io/apiserver uses to serve the local groups. It does not export them.
var libraryKeys = func() (keys struct{ audit, latencies, warnings any }) {
	keys.audit = request.KeyOf(func(ctx context.Context) { audit.AuditContextFrom(ctx) })
	keys.latencies = request.KeyOf(func(ctx context.Context) { apirequest.LatencyTrackersFrom(ctx) })
	keys.warnings = request.KeyOf(func(ctx context.Context) { warning.AddWarning(ctx, "", "-") })
	return keys
}()

// RequestFrom returns r with the facts that the chain has found. Outside a chain, recorded facts are discarded.
func RequestFrom(r *http.Request) *filters.Request {
	ctx := r.Context()
	c, ok := requestContextFrom(ctx)
	if !ok {
		c = &requestContext{}
		c.AuditID = request.AuditID(ctx)
	}
	c.request = c.Context.Request(r, &c.record, &c.response)
	return &c.request
}

// recordFrom never returns nil. Outside a chain, recorded facts are discarded.
func recordFrom(ctx context.Context) *filters.Record {
	if c, ok := requestContextFrom(ctx); ok {
		return &c.record
	}
	return &filters.Record{}
}

// response records the response of a request. It implements http.Flusher and http.CloseNotifier, because
// k8s.io/apiserver requires them of the writers for the local groups.
type response struct {
	filters.Response

	engine      engine.ResponseWriter // nil if the writer is not an engine's, as for requests of the server itself
	ctx         *requestContext
	slowClients *slowClients  // nil if the response is not tracked
	slow        *slowResponse // entry in slowClients, which guards it; nil before the first
	listed      atomic.Bool   // whether slow is set
	flushed     atomic.Bool

	withhold func() bool // see withheld.go; nil if nothing is withheld
	withheld bool
}

// Continue calls rest after the handler has returned; see filters.Continue. It returns false if the server does not
// support this.
func (w *response) Continue(rest func()) bool {
	return w.engine != nil && w.engine.Continue(func() {
		defer w.slowClients.forget(w)
		rest()
	})
}

// hijackable is a response over HTTP/1.1, with a connection that can be hijacked for an upgrade. HTTP/2 has no such
// upgrade, so its writers must not implement http.Hijacker.
type hijackable struct{ *response }

// wrap makes w write to the given writer, and returns the writer for the chain.
func (w *response) wrap(to http.ResponseWriter, r *http.Request) http.ResponseWriter {
	w.ResponseWriter = to
	w.engine, _ = to.(engine.ResponseWriter)
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
	processors.NoteWork()
	w.slowClients.writing(w, len(p))
	defer w.slowClients.written(w)
	return w.Response.Write(p)
}

// engineBuffer is the size of the part of a body that every engine keeps until its handler returns or flushes. Such
// writes do not wait for a client.
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

// CloseNotify implements http.CloseNotifier for k8s.io/apiserver/pkg/endpoints/responsewriter.
func (w *response) CloseNotify() <-chan bool {
	if w.engine != nil {
		return w.engine.CloseNotify()
	}
	return make(chan bool) // never closed: the request's context ends instead
}

// Hijack implements http.Hijacker.
func (w hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.TakeConnection() }
