package server

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"portico.dev/internal/filters"
	"portico.dev/internal/mirror"
	"portico.dev/internal/proxy"
	"portico.dev/internal/request"
	"portico.dev/internal/routetable"
	"portico.dev/internal/routing"
)

// mayMirror reports whether a copy of a read is sent: of one that changes nothing, and that does not depend on what another backend said.
func (s *Router) mayMirror(r *filters.Request, q *routing.Request, route *routetable.Route, m *routing.Mirror) bool {
	if s.Mirror == nil || !q.MayMirror() || m.Percent < 100 && rand.IntN(100) >= m.Percent {
		return false
	}
	query, plain := plainRead(r, route.Options.LongRunningSubresources)
	return plain && query.Get("continue") == ""
}

// serveObserved sends a request to the backend that a rule has chosen, and looks at how it ends: for the rate of errors of the backend, and to
// compare what the client gets.
func (s *Router) serveObserved(w http.ResponseWriter, r *filters.Request, route *routetable.Route, c routing.Choice, part *routetable.Route, target proxy.Destination) {
	o := &observed{Response: filters.Response{ResponseWriter: w}}
	if c.Mirror != nil {
		o.read = s.Mirror.Begin(route.Name, route.Routing.Backends[c.Mirror.Backend].Name, r.URL.Path)
	}
	if target.Fallback != nil {
		target.Fallback = observedFallback{target.Fallback, o}
	}
	complete := false
	defer func() {
		s.countObserved(r, route, c, o, complete)
		if o.read != nil {
			s.mirrorObserved(r, route, c, o, complete)
		}
	}()
	if r.Header["Upgrade"] != nil { // it may need the connection, and its code
		s.serveRemote(w, r, part, target)
		o.Code = filters.ResponseOf(w).Code
	} else {
		s.serveRemote(o, r, part, target)
	}
	complete = true
}

// observed is a response on its way to the client.
type observed struct {
	filters.Response
	read      *mirror.Read // nil: no copy is sent
	elsewhere bool         // the backend did not answer, and another one was asked
	unread    bool         // the client does not take the response
}

// WriteHeader implements http.ResponseWriter.
func (o *observed) WriteHeader(code int) {
	if o.read != nil && code >= http.StatusOK {
		o.read.Response.WriteHeader(code, o.Header())
	}
	o.Response.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (o *observed) Write(p []byte) (int, error) {
	n, err := o.Response.Write(p)
	o.unread = o.unread || err != nil
	if o.read != nil {
		o.read.Response.WriteHeader(http.StatusOK, o.Header())
		o.read.Response.Write(p)
	}
	return n, err
}

// observedFallback notes that a request goes elsewhere.
type observedFallback struct {
	proxy.Fallback
	o *observed
}

// Elsewhere implements proxy.Fallback.
func (f observedFallback) Elsewhere(r *http.Request, failed proxy.Destination) (proxy.Destination, bool) {
	next, ok := f.Fallback.Elsewhere(r, failed)
	f.o.elsewhere = f.o.elsewhere || ok
	return next, ok
}

// countObserved counts a request that the backend failed, or not. What its client caused says nothing about the backend: that it left, took
// no response, or left no time for one.
func (s *Router) countObserved(r *filters.Request, route *routetable.Route, c routing.Choice, o *observed, complete bool) {
	rec := r.Record
	switch {
	case c.ErrorRate == nil, o.unread, errors.Is(request.ClientContext(r.Context()).Err(), context.Canceled),
		rec.Draining != nil && rec.Draining.Err() != nil:
	case o.elsewhere:
		s.count(route, c, true)
	case o.Code == http.StatusGatewayTimeout && strings.Contains(r.URL.RawQuery, "timeout"):
	case !complete:
		s.count(route, c, !rec.IsLongRunning)
	default:
		s.count(route, c, isFailure(o.Code))
	}
}

func isFailure(code int) bool {
	switch code {
	case 0, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// count counts a request for the backend of a choice.
func (s *Router) count(route *routetable.Route, c routing.Choice, failed bool) {
	if found, exceeded := c.ErrorRate.Count(time.Now(), failed); exceeded && s.RollBack != nil {
		s.RollBack(route, c.Rule, c.Backend, found)
	}
}

// mirrorObserved has a copy of a read sent, if the response of its own backend is complete.
func (s *Router) mirrorObserved(r *filters.Request, route *routetable.Route, c routing.Choice, o *observed, complete bool) {
	if !complete || o.Code == 0 || o.elsewhere || o.unread || r.Record.Failure != "" {
		s.Mirror.Cancel(o.read)
		return
	}
	o.read.Rules = mirror.Rules{Group: route.GroupVersion.Group, Ignore: c.Mirror.Ignore}
	o.read.Send = s.copyOf(r, route, c)
	s.Mirror.End(o.read)
}

// copyOf returns what sends a copy of a read, which may be over by then: a GET as the same user, without a body. It takes no seat and has no
// record, so that neither flow control nor audit know of it; it has a concurrency slot of its backend.
func (s *Router) copyOf(r *filters.Request, route *routetable.Route, c routing.Choice) func(context.Context, http.ResponseWriter) error {
	info, who, auditID, url, header := r.Info, r.User, r.AuditID, *r.URL, r.Header.Clone()
	header.Del("Accept-Encoding") // what comes is read here
	sent := http.Request{Method: http.MethodGet, URL: &url, Host: r.Host, Header: header, RemoteAddr: r.RemoteAddr, TLS: r.TLS, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	return func(ctx context.Context, w http.ResponseWriter) error {
		now, ok := s.Routes().Lookup(route.GroupVersion)
		if !ok || now.Routing == nil || now.Routing.UID != route.Routing.UID || now.Routing.Generation != route.Routing.Generation {
			return mirror.ErrObsolete
		}
		part := now.Parts[c.Mirror.Backend]
		if !part.Available() && !part.Untested() {
			return errors.New("the backend is not available: " + part.Condition.Reason)
		}
		copied := request.Context{Context: ctx, Info: info, User: who, AuditID: auditID, RemoteAddr: sent.RemoteAddr, Received: time.Now()}
		outcome := &copyOutcome{}
		target := s.directly(now, part)
		target.Fallback, target.Observer, target.Quiet = nil, outcome, true // no other replica, and no other backend
		s.Proxy.Serve(w, sent.WithContext(&copied), target)
		return outcome.err
	}
}

// copyOutcome is told what becomes of a copy.
type copyOutcome struct{ err error }

// Admitted implements proxy.Observer.
func (*copyOutcome) Admitted(filters.Slot) {}

// Attempted implements proxy.Observer.
func (*copyOutcome) Attempted(string, int) {}

// Failed implements proxy.Observer.
func (o *copyOutcome) Failed(text string) { o.err = errors.New(text) }

// LongRunning implements proxy.Observer.
func (*copyOutcome) LongRunning() {}

var _ proxy.Observer = (*copyOutcome)(nil)
