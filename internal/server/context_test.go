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

	"portico.dev/internal/httpmsg"
	"portico.dev/internal/request"
)

func TestRequestContextHasItsDeadlineWhetherOrNotSomebodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, leave := context.WithCancel(t.Context())
		defer leave()
		s, r := requestContextOf(httptest.NewRequest(http.MethodGet, "/", nil).WithContext(parent))
		if again, same := requestContextOf(r); again != s || same != r {
			t.Error("a second context")
		}
		if _, ok := s.Deadline(); ok || s.Done() != parent.Done() || request.ClientContext(r.Context()) != r.Context() {
			t.Error("a deadline that nobody gave")
		}
		s.SetDeadline(time.Now().Add(time.Second))
		if at, ok := s.Deadline(); !ok || at != time.Now().Add(time.Second) || s.Err() != nil {
			t.Error(at, s.Err())
		}
		if request.ClientContext(r.Context()).Done() != parent.Done() {
			t.Error("the client ends with the deadline")
		}
		child, cancel := context.WithCancel(s)
		defer cancel()
		<-child.Done()
		if !errors.Is(s.Err(), context.DeadlineExceeded) || !errors.Is(child.Err(), context.DeadlineExceeded) {
			t.Error(s.Err(), child.Err())
		}
		s.Finish()

		late, _ := requestContextOf(httptest.NewRequest(http.MethodGet, "/", nil).WithContext(parent))
		late.SetDeadline(time.Now().Add(time.Second))
		time.Sleep(2 * time.Second) // in the bubble
		if !errors.Is(late.Err(), context.DeadlineExceeded) {
			t.Error("nobody waited, and the deadline is forgotten:", late.Err())
		}
		late.Finish()
	})
}

// Contexts that are made from a requestContext cost no goroutine that waits: a watch lives in two or three of them.
func TestContextsOfARequestContextCostNoGoroutine(t *testing.T) {
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
			t.Errorf("timed %t: %d goroutines for %d contexts", timed, more, len(children))
		}
		life.End()
		for _, child := range children {
			<-child.Done()
			if child.Err() == nil {
				t.Error("an end without an error")
			}
		}
		s.Finish()
	}
}

func TestRequestContextEndsWithItsRequestAndItsClient(t *testing.T) {
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
				t.Error(s.Err())
			}
		})
		parent, leave = context.WithCancel(t.Context())
	}
	leave()
}
