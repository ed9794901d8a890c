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

	"portico.dev/internal/handler"
	"portico.dev/internal/proxy"
)

func TestSceneHasItsDeadlineWhetherOrNotSomebodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, leave := context.WithCancel(t.Context())
		defer leave()
		s, r := sceneOf(httptest.NewRequest(http.MethodGet, "/", nil).WithContext(parent))
		if again, same := sceneOf(r); again != s || same != r {
			t.Error("a second scene")
		}
		if _, ok := s.Deadline(); ok || s.Done() != parent.Done() || proxy.ClientOf(r.Context()) != r.Context() {
			t.Error("a deadline that nobody gave")
		}
		s.until(time.Now().Add(time.Second))
		if at, ok := s.Deadline(); !ok || at != time.Now().Add(time.Second) || s.Err() != nil {
			t.Error(at, s.Err())
		}
		if proxy.ClientOf(r.Context()).Done() != parent.Done() {
			t.Error("the client ends with the deadline")
		}
		child, cancel := context.WithCancel(s)
		defer cancel()
		<-child.Done()
		if !errors.Is(s.Err(), context.DeadlineExceeded) || !errors.Is(child.Err(), context.DeadlineExceeded) {
			t.Error(s.Err(), child.Err())
		}
		s.end()

		late, _ := sceneOf(httptest.NewRequest(http.MethodGet, "/", nil).WithContext(parent))
		late.until(time.Now().Add(time.Second))
		time.Sleep(2 * time.Second) // in the bubble
		if !errors.Is(late.Err(), context.DeadlineExceeded) {
			t.Error("nobody waited, and the deadline is forgotten:", late.Err())
		}
		late.end()
	})
}

// Contexts that are made from a scene cost no goroutine that waits: a watch lives in two or three of them.
func TestContextsOfASceneCostNoGoroutine(t *testing.T) {
	for _, timed := range []bool{false, true} {
		var life handler.Life
		life.Begin(&handler.Home{})
		s, _ := sceneOf(httptest.NewRequest(http.MethodGet, "/", nil).WithContext(&life))
		if timed {
			s.until(time.Now().Add(time.Hour))
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
		s.end()
	}
}

func TestSceneEndsWithItsRequestAndItsClient(t *testing.T) {
	parent, leave := context.WithCancel(t.Context())
	for name, c := range map[string]struct {
		wait bool
		end  func(*scene)
	}{
		"served, somebody waits":      {true, (*scene).end},
		"served, somebody waits late": {false, (*scene).end},
		"the client leaves":           {true, func(*scene) { leave() }},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := sceneOf(httptest.NewRequest(http.MethodGet, "/", nil).WithContext(parent))
			s.until(time.Now().Add(time.Hour))
			if c.wait {
				_ = s.Done()
			}
			defer s.end()
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
