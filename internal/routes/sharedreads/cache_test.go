package sharedreads

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const maxAge = 5 * time.Second

// server sends a configured response after a second and counts requests.
type server struct {
	code   int
	header http.Header
	body   string
	breaks bool
	sent   atomic.Int64
}

func (s *server) send(w http.ResponseWriter) {
	n := s.sent.Add(1)
	time.Sleep(time.Second)
	for name, values := range s.header {
		w.Header()[name] = values
	}
	w.Header().Set("Audit-Id", fmt.Sprint("of request ", n))
	w.WriteHeader(s.code)
	half := len(s.body) / 2
	_, _ = w.Write([]byte(s.body[:half]))
	if s.breaks {
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write([]byte(s.body[half:]))
}

// ask returns the response to a request with a key, or nil if the response was aborted.
func ask(ctx context.Context, c *Cache, key string, p Policy, send func(http.ResponseWriter)) (got *httptest.ResponseRecorder) {
	w := httptest.NewRecorder()
	w.Header().Set("Audit-Id", "own")
	defer func() {
		switch cause := recover(); cause {
		case nil:
			got = w
		case http.ErrAbortHandler:
		default:
			panic(cause)
		}
	}()
	c.Serve(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil), Request{
		Key: key, Policy: p, Send: send, Unkeyed: func(name string) bool { return name == "User-Agent" },
	})
	return
}

// askAtOnce sends n requests that arrive while the first one is in progress.
func askAtOnce(t *testing.T, n int, c *Cache, p Policy, send func(http.ResponseWriter)) []*httptest.ResponseRecorder {
	t.Helper()
	all := make([]*httptest.ResponseRecorder, n)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i] = ask(t.Context(), c, "key", p, send) })
	}
	wg.Wait()
	return all
}

func TestEqualReadsShareResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{code: http.StatusOK, header: http.Header{"Content-Type": {"application/json"}}, body: "{}"}
		c := New(Config{})
		for _, w := range askAtOnce(t, 50, c, Policy{MaxAge: maxAge}, s.send) {
			if w == nil || w.Code != http.StatusOK || w.Body.String() != "{}" || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Audit-Id") != "own" {
				t.Fatalf("response = %+v, want 200 {} as JSON with the Audit-Id of the request", w)
			}
		}
		if n := s.sent.Load(); n != 1 {
			t.Errorf("%d requests were sent, want 1", n)
		}
		time.Sleep(3 * time.Second)
		if w := ask(t.Context(), c, "key", Policy{MaxAge: maxAge}, s.send); w.Body.String() != "{}" || w.Header().Get("Age") != "3" || s.sent.Load() != 1 {
			t.Errorf("response after three seconds = %q with Age %q, %d requests sent, want the kept one with Age 3", w.Body, w.Header().Get("Age"), s.sent.Load())
		}
		time.Sleep(2 * time.Second)
		s.body = "[]"
		if w := ask(t.Context(), c, "key", Policy{MaxAge: maxAge}, s.send); w.Body.String() != "[]" || w.Header().Get("Age") != "" || s.sent.Load() != 2 {
			t.Errorf("response after the maximum age = %q, %d requests sent, want [] and 2", w.Body, s.sent.Load())
		}
		if w := ask(t.Context(), c, "other key", Policy{MaxAge: maxAge}, s.send); w == nil || s.sent.Load() != 3 {
			t.Errorf("%d requests sent for another key, want 3", s.sent.Load())
		}
	})
}

// Keys are compared completely. A key with the same hash does not get the response of another key.
func TestKeysWithSameHashDoNotShareResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{code: http.StatusOK, body: "first"}
		c := New(Config{})
		policy := Policy{MaxAge: time.Hour, StaleIfError: time.Hour}
		ask(t.Context(), c, "first", policy, s.send)
		first, _ := c.find("first")
		_, hash := c.find("second")
		c.keep(hash, &kept{key: first.key, body: first.body, received: first.received, until: first.until, size: first.size})
		w := httptest.NewRecorder()
		if c.ServeKept(w, []byte("second"), "", policy.MaxAge) {
			t.Fatalf("ServeKept for a key with the same hash = %q, want no response", w.Body)
		}
		s.code = http.StatusServiceUnavailable
		if w := ask(t.Context(), c, "second", policy, s.send); w.Code != http.StatusServiceUnavailable {
			t.Errorf("response to the key with the same hash while the server fails = %d %q, want 503", w.Code, w.Body)
		}
		s.code, s.body = http.StatusOK, "second"
		if w := ask(t.Context(), c, "second", policy, s.send); w.Body.String() != "second" || s.sent.Load() != 3 {
			t.Errorf("response to the key with the same hash = %q, %d requests sent, want \"second\" and 3", w.Body, s.sent.Load())
		}
		w = httptest.NewRecorder()
		if second, _ := c.find("second"); !c.ServeKept(w, []byte("second"), "", policy.MaxAge) || w.Body.String() != "second" || c.bytes != first.size+second.size {
			t.Errorf("kept response = %q with %d bytes in total, want \"second\"", w.Body, c.bytes)
		}
	})
}

// Without a maximum age, only requests that wait for a response share it.
func TestResponseIsNotCachedWithoutMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{code: http.StatusOK, body: "{}"}
		c := New(Config{})
		for want := range int64(3) {
			askAtOnce(t, 10, c, Policy{}, s.send)
			if n := s.sent.Load(); n != want+1 {
				t.Errorf("%d requests sent, want %d", n, want+1)
			}
		}
		if c.kept.Len() != 0 || c.bytes != 0 || c.receiving != 0 {
			t.Errorf("%d responses kept, %d bytes, %d bytes being received, want 0", c.kept.Len(), c.bytes, c.receiving)
		}
	})
}

func TestUncacheableResponseIsNotShared(t *testing.T) {
	for name, s := range map[string]*server{
		"not found":    {code: http.StatusNotFound, body: "no such object"},
		"forbidden":    {code: http.StatusForbidden, body: "for somebody else"},
		"a failure":    {code: http.StatusServiceUnavailable, body: "overloaded"},
		"another code": {code: http.StatusPartialContent, body: "{"},
		"a cookie":     {code: http.StatusOK, header: http.Header{"Set-Cookie": {"a=b"}}, body: "{}"},
		"trailers":     {code: http.StatusOK, header: http.Header{"Trailer": {"X-End"}}, body: "{}"},
		"a large body": {code: http.StatusOK, body: strings.Repeat("x", 2000)},
		"varies by a field that is not in the key": {code: http.StatusOK, header: http.Header{"Vary": {"Accept, user-agent"}}, body: "{}"},
		"varies by everything":                     {code: http.StatusOK, header: http.Header{"Vary": {"*"}}, body: "{}"},
		"one that ended":                           {code: http.StatusOK, body: "{}", breaks: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New(Config{MaxResponse: 1500})
				for _, w := range askAtOnce(t, 5, c, Policy{MaxAge: maxAge}, s.send) {
					if (w == nil) != s.breaks || w != nil && (w.Code != s.code || w.Body.String() != s.body) {
						t.Errorf("response = %+v, want %d %q or an aborted one", w, s.code, s.body)
					}
				}
				if n := s.sent.Load(); n != 5 {
					t.Errorf("%d requests sent, want 5", n)
				}
				if c.kept.Len() != 0 || c.bytes != 0 || c.receiving != 0 || len(c.flights) != 0 {
					t.Errorf("%d responses kept, %d bytes, %d bytes being received, %d in progress, want 0", c.kept.Len(), c.bytes, c.receiving, len(c.flights))
				}
			})
		})
	}
}

// If the client of the shared request disconnects, the waiting requests still get a response, and few requests are sent.
func TestWaitersGetResponseAfterFirstClientDisconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{})
		ctx, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if w := ask(ctx, c, "key", Policy{MaxAge: maxAge}, func(http.ResponseWriter) {
				<-ctx.Done()
				panic(http.ErrAbortHandler)
			}); w != nil {
				t.Errorf("response to the aborted request = %+v, want none", w)
			}
		})
		synctest.Wait()
		s := &server{code: http.StatusOK, body: "{}"}
		wg.Go(func() {
			for _, w := range askAtOnce(t, 20, c, Policy{MaxAge: maxAge}, s.send) {
				if w == nil || w.Body.String() != "{}" {
					t.Errorf("response to a waiting request = %+v, want {}", w)
				}
			}
		})
		synctest.Wait()
		leave()
		wg.Wait()
		if n := s.sent.Load(); n != 1 {
			t.Errorf("%d requests sent, want 1", n)
		}
	})
}

// If a waiting client disconnects, the proxy records the outcome as without sharing.
func TestWaiterDisconnectIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{})
		s := &server{code: http.StatusOK, body: "{}"}
		var wg sync.WaitGroup
		wg.Go(func() { ask(t.Context(), c, "key", Policy{MaxAge: maxAge}, s.send) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		told := false
		ask(ctx, c, "key", Policy{MaxAge: maxAge}, func(w http.ResponseWriter) { told = ctx.Err() != nil })
		if !told {
			t.Error("proxy did not handle the canceled request, want a call with an ended context")
		}
		wg.Wait()
	})
}

func TestStaleResponseIsServedOnFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{})
		policy := Policy{MaxAge: maxAge, StaleIfError: time.Minute}
		s := &server{code: http.StatusOK, body: "{}"}
		ask(t.Context(), c, "key", policy, s.send)
		time.Sleep(10 * time.Second)
		s.code, s.body = http.StatusServiceUnavailable, "overloaded"
		w := ask(t.Context(), c, "key", policy, s.send)
		if w.Code != http.StatusOK || w.Body.String() != "{}" || w.Header().Get("Age") != "11" || !strings.HasPrefix(w.Header().Get("Warning"), "299 - ") {
			t.Errorf("response while the server fails = %+v, want the stale one with Age 11 and a Warning", w)
		}
		if s.sent.Load() != 2 {
			t.Errorf("%d requests sent, want 2", s.sent.Load())
		}
		for _, w := range askAtOnce(t, 10, c, policy, s.send) {
			if w.Code != http.StatusOK || w.Body.String() != "{}" || len(w.Header()["Warning"]) != 1 {
				t.Errorf("response to a simultaneous request while the server fails = %+v, want the stale one with a Warning", w)
			}
		}
		if s.sent.Load() != 3 {
			t.Errorf("server received %d requests during the failure, want 1", s.sent.Load()-2)
		}
		s.code, s.body = http.StatusNotFound, "gone"
		if w := ask(t.Context(), c, "key", policy, s.send); w.Code != http.StatusNotFound {
			t.Errorf("response to a deleted object = %+v, want 404", w)
		}
		s.code, s.body = http.StatusServiceUnavailable, "overloaded"
		if w := ask(t.Context(), c, "key", policy, s.send); w.Code != http.StatusServiceUnavailable || w.Body.String() != "overloaded" {
			t.Errorf("response to a deleted object while the server fails = %+v, want 503", w)
		}
		s.code, s.body = http.StatusOK, "{}"
		ask(t.Context(), c, "key", policy, s.send)
		time.Sleep(maxAge + time.Minute)
		s.code, s.body = http.StatusServiceUnavailable, "overloaded"
		if w := ask(t.Context(), c, "key", policy, s.send); w.Code != http.StatusServiceUnavailable || w.Body.String() != "overloaded" {
			t.Errorf("response a minute after the maximum age = %+v, want 503", w)
		}
	})
}

func TestCachedResponsesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 100 << 10
		c := New(Config{MaxBytes: most, MaxResponse: 20 << 10})
		s := &server{code: http.StatusOK, body: strings.Repeat("x", 10<<10)}
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() { ask(t.Context(), c, fmt.Sprint("key ", i), Policy{MaxAge: time.Hour}, s.send) })
		}
		wg.Wait()
		if c.bytes > most || c.kept.Len() < 5 || c.receiving != 0 {
			t.Errorf("%d bytes in %d responses kept, %d bytes being received, want at most %d bytes in at least 5 responses", c.bytes, c.kept.Len(), c.receiving, most)
		}
		// Expired responses are removed when another response is kept.
		time.Sleep(time.Hour)
		ask(t.Context(), c, "new", Policy{MaxAge: time.Hour}, s.send)
		if c.kept.Len() != 1 {
			t.Errorf("%d responses kept, want 1", c.kept.Len())
		}
	})
}

// A57: a user who sends ?junk=1..n fills the cache with responses that are never requested again.
func TestA57UserCannotEvictResponsesOfOtherUsers(t *testing.T) {
	c := New(Config{MaxBytes: 100 << 10, MaxResponse: 20 << 10})
	s := &server{code: http.StatusOK, body: strings.Repeat("x", 4<<10)}
	send := func(w http.ResponseWriter) {
		s.sent.Add(1)
		_, _ = w.Write([]byte(s.body))
	}
	read := func(user, key string) {
		c.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), Request{Key: key, User: user, Policy: Policy{MaxAge: time.Hour}, Send: send})
	}
	for i := range 3 {
		read("victim", fmt.Sprint("list ", i))
	}
	for i := range 1000 {
		read("attacker", fmt.Sprint("list?junk=", i))
	}
	before := s.sent.Load()
	for i := range 3 {
		read("victim", fmt.Sprint("list ", i))
	}
	if got := s.sent.Load() - before; got != 0 {
		t.Errorf("the server received %d of 3 reads again after another user filled the cache, want 0", got)
	}
	if c.bytes > c.config.MaxBytes || c.bytes < c.config.MaxBytes/2 || len(c.users) != 2 {
		t.Errorf("the cache keeps %d bytes of %d users, want at most %d bytes of 2 users", c.bytes, len(c.users), c.config.MaxBytes)
	}
	read("victim", "large") // The least recently used response of the largest user is evicted.
	before = s.sent.Load()
	read("attacker", "list?junk=999")
	if got := s.sent.Load() - before; got != 0 {
		t.Errorf("the server received the most recent read of the largest user again, want the least recent one evicted")
	}
}

func TestA57UserIsLimitedToHalfOfSharedBytes(t *testing.T) {
	c := New(Config{MaxBytes: 1000})
	for _, step := range []struct {
		user  string
		bytes int64
		want  bool
	}{{"attacker", 500, true}, {"attacker", 1, false}, {"victim", 500, true}, {"third", 1, false}} {
		if got := c.receive(step.user, step.bytes); got != step.want {
			t.Errorf("receive(%q, %d) = %t, want %t", step.user, step.bytes, got, step.want)
		}
	}
	c.received("attacker", 500)
	c.received("victim", 500)
	if c.receiving != 0 || len(c.receivingBy) != 0 {
		t.Errorf("%d bytes of %d users are still being received, want 0", c.receiving, len(c.receivingBy))
	}
}
