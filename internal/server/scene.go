package server

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/proxy"
	"portico.dev/internal/request"
)

// scene is the context of a request in the chain: what is known of it, the record that filters write to, and its deadline.
//
// The deadline begins to cost something when somebody waits for it. A proxied request has a timer of its own (the proxy
// takes the deadline back when the answer begins) and only wants to know when it is.
type scene struct {
	request.Facts
	record record

	audited bool                         // events goes with the request
	events  audit.AuditContext           // the library's, for what the local groups add
	trail   trail                        // what is written down of the request
	asked   *authorizer.AttributesRecord // what is asked of the authorizer, before impersonation; nil: not known yet
	asking  authorizer.AttributesRecord  // room for it

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

// auditKey is the key of k8s.io/apiserver/pkg/audit.
var auditKey = request.KeyOf(func(ctx context.Context) { audit.AuditContextFrom(ctx) })

// withEvents is ctx with an audit context of the library: the one of the scene, or a new one.
func withEvents(ctx context.Context) context.Context {
	s, ok := ctx.Value(sceneKey{}).(*scene)
	if !ok {
		return audit.WithAuditContext(ctx)
	}
	s.audited = true
	s.events.SetEventStage(auditinternal.StageResponseStarted) // as the library begins
	return ctx
}

// sceneOf is the scene of r, and r with it when it had none.
func sceneOf(r *http.Request) (*scene, *http.Request) {
	if s, ok := r.Context().(*scene); ok {
		return s, r
	}
	if s, ok := r.Context().Value(sceneKey{}).(*scene); ok {
		return s, r
	}
	s := &scene{Facts: request.Facts{Context: r.Context()}}
	return s, r.WithContext(s)
}

// ask is attributesOf with room of its own; a nil scene has none.
func (s *scene) ask(ctx context.Context) (*authorizer.AttributesRecord, error) {
	room := &authorizer.AttributesRecord{}
	if s != nil {
		room = &s.asking
	}
	return room, fillAttributes(ctx, room)
}

// infoOf is apirequest.RequestInfoFrom, sooner.
func infoOf(ctx context.Context) (*apirequest.RequestInfo, bool) {
	if s, ok := ctx.(*scene); ok && s.Info != nil { // nearly always
		return s.Info, true
	}
	return apirequest.RequestInfoFrom(ctx)
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
	case key == auditKey && s.audited:
		return &s.events
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
