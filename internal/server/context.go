package server

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"portico.dev/internal/proxy"
	"portico.dev/internal/request"
)

// scene is the context of a request in the chain: what is known of it, the record that filters write to, and its deadline.
// Contexts made from it may outlive the request, so that none is used again for another one.
//
// The deadline begins to cost something when somebody waits for it. A proxied request has a timer of its own (the proxy
// takes the deadline back when the answer begins) and only wants to know when it is.
type scene struct {
	request.Facts
	record   record
	response response

	trail  trail                        // what is written down of the request
	local  *local                       // what the library wants that serves the local groups; nil: they do not serve it
	early  earlyWarnings                // of authentication
	asked  *authorizer.AttributesRecord // what is asked of the authorizer, before impersonation; nil: not known yet
	asking authorizer.AttributesRecord  // room for it

	remote   string    // the client's address
	deadline time.Time // zero: none
	ended    atomic.Bool
	arm      sync.Once
	armed    atomic.Pointer[timedContext]
}

// timedContext is the context that has the deadline, once somebody waits.
type timedContext struct {
	context.Context
	cancel context.CancelFunc
}

type sceneKey struct{}

// newScene is the scene of a request that begins, and the request with it. The context may belong to another request,
// for which this one is made within the house; the scene of that one is not touched.
func newScene(r *http.Request) (*scene, *http.Request) {
	s := &scene{Facts: request.Facts{Context: r.Context()}, remote: r.RemoteAddr}
	return s, r.WithContext(s)
}

// sceneOf is the scene of r, and r with it when it had none.
func sceneOf(r *http.Request) (*scene, *http.Request) {
	if s, ok := sceneFrom(r.Context()); ok {
		return s, r
	}
	return newScene(r)
}

func sceneFrom(ctx context.Context) (*scene, bool) {
	if s, ok := ctx.(*scene); ok { // nearly always
		return s, true
	}
	s, ok := ctx.Value(sceneKey{}).(*scene)
	return s, ok
}

// infoOf is apirequest.RequestInfoFrom, sooner.
func infoOf(ctx context.Context) (*apirequest.RequestInfo, bool) {
	if s, ok := ctx.(*scene); ok && s.Info != nil { // nearly always
		return s.Info, true
	}
	return apirequest.RequestInfoFrom(ctx)
}

// userOf is apirequest.UserFrom, likewise.
func userOf(ctx context.Context) (user.Info, bool) {
	if s, ok := ctx.(*scene); ok && s.User != nil {
		return s.User, true
	}
	return apirequest.UserFrom(ctx)
}

// began is when the request came.
func (s *scene) began() time.Time {
	if s.Received.IsZero() {
		return time.Now()
	}
	return s.Received
}

// until gives the scene its deadline, before it is passed on.
func (s *scene) until(at time.Time) { s.deadline = at }

// end is called when nobody serves the request any more.
func (s *scene) end() {
	s.ended.Store(true)
	if t := s.armed.Load(); t != nil {
		t.cancel()
	}
}

func (s *scene) timed() *timedContext {
	s.arm.Do(func() {
		t := &timedContext{}
		t.Context, t.cancel = context.WithDeadline(s.Context, s.deadline)
		s.armed.Store(t)
	})
	t := s.armed.Load()
	if s.ended.Load() {
		t.cancel()
	}
	return t
}

// Deadline implements context.Context.
func (s *scene) Deadline() (time.Time, bool) {
	at, ok := s.Context.Deadline()
	if s.deadline.IsZero() || ok && at.Before(s.deadline) {
		return at, ok
	}
	return s.deadline, true
}

// Done implements context.Context.
func (s *scene) Done() <-chan struct{} {
	if s.deadline.IsZero() {
		return s.Context.Done()
	}
	return s.timed().Done()
}

// AfterFunc is what package context asks for: without it, each context that is made from this one would cost a goroutine
// that waits.
func (s *scene) AfterFunc(f func()) (stop func() bool) {
	if s.deadline.IsZero() {
		return context.AfterFunc(s.Context, f)
	}
	return context.AfterFunc(s.timed(), f)
}

// Client is the context of the request without the deadline: it ends when the client leaves.
func (s *scene) Client() context.Context { return s.Context }

// Err implements context.Context.
func (s *scene) Err() error {
	if s.deadline.IsZero() {
		return s.Context.Err()
	}
	if s.armed.Load() == nil && !s.ended.Load() && time.Now().Before(s.deadline) {
		return s.Context.Err()
	}
	return s.timed().Err()
}

// Value implements context.Context.
func (s *scene) Value(key any) any {
	switch {
	case key == sceneKey{}:
		return s
	case key == recordKey{}:
		return &s.record
	case key == libraryKeys.audit:
		if events := s.events(); events != nil {
			return events
		}
		return nil // never the one of another request
	case key == libraryKeys.latencies && s.local != nil:
		return &s.local.latencies.LatencyTrackers
	case key == libraryKeys.warnings && s.local != nil:
		return &s.local.warnings
	case key == libraryKeys.warnings && s.User == nil:
		return &s.early
	case proxy.AsksForClient(key) && !s.deadline.IsZero():
		return s.Context
	}
	if t := s.armed.Load(); t != nil {
		if v := t.Value(key); v != nil {
			return v
		}
	}
	return s.Facts.Value(key)
}

// libraryKeys are the keys of k8s.io/apiserver under which it looks for what it needs to serve the local groups.
var libraryKeys = func() (keys struct{ audit, latencies, warnings any }) {
	keys.audit = request.KeyOf(func(ctx context.Context) { audit.AuditContextFrom(ctx) })
	keys.latencies = request.KeyOf(func(ctx context.Context) { apirequest.LatencyTrackersFrom(ctx) })
	keys.warnings = request.KeyOf(func(ctx context.Context) { warning.AddWarning(ctx, "", "-") })
	return keys
}()
