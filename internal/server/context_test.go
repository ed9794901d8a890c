package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"portico.dev/internal/httpengine/httpmsg"
	"portico.dev/internal/request"
)

func TestRequestContextExpiresWithAndWithoutWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, leave := context.WithCancel(t.Context())
		defer leave()
		s, r := requestContextOf(httptest.NewRequest(http.MethodGet, "/", nil).WithContext(parent))
		if again, same := requestContextOf(r); again != s || same != r {
			t.Error("a second requestContextOf of the same request returned another context, want the first one")
		}
		if _, ok := s.Deadline(); ok || s.Done() != parent.Done() || request.ClientContext(r.Context()) != r.Context() {
			t.Error("a request context without a deadline differs from its parent, want no deadline and the parent's Done channel")
		}
		s.SetDeadline(time.Now().Add(time.Second))
		if at, ok := s.Deadline(); !ok || at != time.Now().Add(time.Second) || s.Err() != nil {
			t.Errorf("deadline of the request context = %v with the error %v, want a second from now and no error", at, s.Err())
		}
		if request.ClientContext(r.Context()).Done() != parent.Done() {
			t.Error("the client context has another Done channel than the parent, want the parent's")
		}
		child, cancel := context.WithCancel(s)
		defer cancel()
		<-child.Done()
		if !errors.Is(s.Err(), context.DeadlineExceeded) || !errors.Is(child.Err(), context.DeadlineExceeded) {
			t.Errorf("errors after the deadline = %v and of the child %v, want context.DeadlineExceeded", s.Err(), child.Err())
		}
		s.Finish()

		late, _ := requestContextOf(httptest.NewRequest(http.MethodGet, "/", nil).WithContext(parent))
		late.SetDeadline(time.Now().Add(time.Second))
		time.Sleep(2 * time.Second) // in the bubble
		if !errors.Is(late.Err(), context.DeadlineExceeded) {
			t.Errorf("error after the deadline, without a waiter = %v, want context.DeadlineExceeded", late.Err())
		}
		late.Finish()
	})
}

// A value for a chain is in the context that an engine has made for the request, and the chain uses that context. A second value, or
// another context, costs a new request.
func TestValueForChainIsInTheContextOfTheEngine(t *testing.T) {
	type first struct{}
	type second struct{}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	made := clientContext(t.Context(), "192.0.2.1:1")
	read := r.WithContext(made)
	if got := WithValue(read, first{}, 1); got != read {
		t.Error("WithValue returned another request, want the one with the context of the engine")
	}
	if s, inner := newRequestContext(read); inner != read || context.Context(s) != made {
		t.Error("the chain made a new context, want the one of the engine")
	}
	both := WithValue(read, second{}, 2)
	if a, b := both.Context().Value(first{}), both.Context().Value(second{}); both == read || a != 1 || b != 2 {
		t.Errorf("values = %v and %v, want 1 and 2 in a new request: the context of the engine is in use", a, b)
	}
	if v := read.Context().Value(second{}); v != nil {
		t.Errorf("second value of the first request = %v, want none", v)
	}
	if got := WithValue(r, first{}, 3); got == r || got.Context().Value(first{}) != 3 {
		t.Errorf("value of a request without the context of an engine = %v, want 3 in a new request", got.Context().Value(first{}))
	}
}

// Contexts derived from a requestContext start no waiting goroutine: a watch has two or three of them.
func TestContextDerivedFromRequestContextStartsNoGoroutine(t *testing.T) {
	for _, timed := range []bool{false, true} {
		var life httpmsg.Context
		life.SetConn(&httpmsg.ConnInfo{})
		s, _ := requestContextOf(httptest.NewRequest(http.MethodGet, "/", nil).WithContext(&life))
		if timed {
			s.SetDeadline(time.Now().Add(time.Hour))
		}
		before := runtime.NumGoroutine()
		children := make([]context.Context, 200)
		for i := range children {
			var cancel context.CancelFunc
			children[i], cancel = context.WithCancel(s)
			defer cancel()
		}
		if more := runtime.NumGoroutine() - before; more > len(children)/2 {
			t.Errorf("%d more goroutines for %d contexts, with a deadline %t, want at most half as many", more, len(children), timed)
		}
		life.End()
		for _, child := range children {
			<-child.Done()
			if child.Err() == nil {
				t.Errorf("error of a child context after the end, with a deadline %t = nil, want an error", timed)
			}
		}
		s.Finish()
	}
}

func TestRequestContextEndsWithRequestOrClient(t *testing.T) {
	parent, leave := context.WithCancel(t.Context())
	for name, c := range map[string]struct {
		wait bool
		end  func(*requestContext)
	}{
		"served, somebody waits":      {true, func(c *requestContext) { c.Finish() }},
		"served, somebody waits late": {false, func(c *requestContext) { c.Finish() }},
		"the client leaves":           {true, func(*requestContext) { leave() }},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := requestContextOf(httptest.NewRequest(http.MethodGet, "/", nil).WithContext(parent))
			s.SetDeadline(time.Now().Add(time.Hour))
			if c.wait {
				_ = s.Done()
			}
			defer s.Finish()
			c.end(s)
			<-s.Done()
			if !errors.Is(s.Err(), context.Canceled) {
				t.Errorf("error of the request context after its end = %v, want context.Canceled", s.Err())
			}
		})
		parent, leave = context.WithCancel(t.Context())
	}
	leave()
}
