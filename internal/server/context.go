package server

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"portico.dev/internal/filters"
	"portico.dev/internal/request"
)

// requestContext is the context of a request in the chain, with the state that only the filters and the local groups
// need: the record for log and audit, the response writer, the audit event. It is one allocation for each request.
type requestContext struct {
	filters.Context
	record   record
	response response

	audit            requestAudit                 // the audit events of the request
	local            *localRequest                // what the library needs that serves the local groups; nil: they do not serve it
	authWarnings     authWarnings                 // what authentication warns of
	attributes       *authorizer.AttributesRecord // what the authorizer is asked, before impersonation; nil: not known yet
	attributesBuffer authorizer.AttributesRecord  // room for attributes
}

type requestContextKey struct{}

// newRequestContext makes the context of a request that begins, and the request with it. The context of r may belong to
// another request, for which this one is made within the server; that one's requestContext is not touched.
func newRequestContext(r *http.Request) (*requestContext, *http.Request) {
	c := &requestContext{}
	c.Context.Context = request.Context{Context: r.Context(), RemoteAddr: r.RemoteAddr}
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
