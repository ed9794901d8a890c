package remote_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/discovery/remote/remotetest"
)

func request() remote.Request {
	return remote.Request{
		Path: "/apis", Query: "hash=1", Accept: "application/json", ETag: `"a"`,
		As:    remote.Identity{User: "system:kube-aggregator", Groups: []string{"system:masters"}},
		Limit: 1 << 10, Timeout: 5 * time.Second,
	}
}

func TestFetchUsesFrontDoorIdentity(t *testing.T) {
	b := remotetest.NewTLS(t, "ns/name:443", remotetest.Answers(http.StatusOK, "application/json", "{}"))
	a, err := remote.NewFetcher(1).Fetch(t.Context(), b, request())
	if err != nil {
		t.Fatal(err)
	}
	if a.Code != http.StatusOK || string(a.Body) != "{}" || a.ContentType != "application/json" {
		t.Errorf("answer = %+v, want 200 with {} as application/json", a)
	}
	r := b.Requests()[0]
	for header, want := range map[string]string{
		"X-Remote-User": "system:kube-aggregator", "X-Remote-Group": "system:masters",
		"Accept": "application/json", "If-None-Match": `"a"`, "Authorization": "",
	} {
		if got := r.Header.Get(header); got != want {
			t.Errorf("%s = %q, want %q", header, got, want)
		}
	}
	if r.URL.RequestURI() != "/apis?hash=1" {
		t.Errorf("request URI = %q, want %q", r.URL.RequestURI(), "/apis?hash=1")
	}
}

func TestFetchRejectsInvalidResponses(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a redirect was followed, want no request to its target")
	}))
	defer elsewhere.Close()

	for name, c := range map[string]struct {
		handler http.Handler
		code    int
		is      error
	}{
		"a redirect is an answer and is not followed": {handler: remotetest.Redirects(elsewhere.URL), code: http.StatusFound},
		"a body of exactly the limit is read":         {handler: remotetest.Floods(1<<10, "application/json"), code: http.StatusOK},
		"a body over the limit":                       {handler: remotetest.Floods(1<<10+1, "application/json"), is: remote.ErrTooLarge},
		"the body of an error is not read":            {handler: remotetest.Answers(500, "text/plain", "boom"), code: 500},
		"a connection that breaks in the body": {handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("half"))
		}), is: remote.ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := remote.NewFetcher(1).Fetch(t.Context(), remotetest.NewTLS(t, "ns/name:443", c.handler), request())
			if !errors.Is(err, c.is) {
				t.Fatalf("Fetch() error = %v, want %v", err, c.is)
			}
			if err == nil && a.Code != c.code {
				t.Errorf("code = %d, want %d", a.Code, c.code)
			}
			if err == nil && a.Code != http.StatusOK && a.Body != nil {
				t.Errorf("body of code %d = %q, want none", a.Code, a.Body)
			}
		})
	}
}

func TestFetchOfHangingBackendTimesOut(t *testing.T) {
	b := remotetest.NewTLS(t, "ns/name:443", remotetest.Hangs())
	q := request()
	q.Timeout = 50 * time.Millisecond
	if _, err := remote.NewFetcher(1).Fetch(t.Context(), b, q); !errors.Is(err, remote.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Fetch() from a backend that hangs: error = %v, want %v and %v", err, remote.ErrUnreachable, context.DeadlineExceeded)
	}
}

// A handler that returns when its client disconnects ends its response, which may still arrive.
func TestFetchRejectsResponseAfterTimeout(t *testing.T) {
	q := request()
	q.Timeout = time.Millisecond
	if a, err := remote.NewFetcher(1).Fetch(t.Context(), late{}, q); !errors.Is(err, remote.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Fetch() of a response after the timeout = %+v, %v, want %v and %v", a, err, remote.ErrUnreachable, context.DeadlineExceeded)
	}
}

// late is a backend that answers after the deadline of the request.
type late struct{ remote.Backend }

func (late) Name() string               { return "ns/late:443" }
func (l late) Probe() http.RoundTripper { return l }

func (late) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}, nil
}

// A backend that sends only its headers holds one of the slots for bodies, but only until its deadline.
func TestFetchWaitsForBodySlotUntilDeadline(t *testing.T) {
	started := make(chan struct{})
	stalls := remotetest.NewTLS(t, "ns/stalls:443", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		close(started)
		<-r.Context().Done()
	}))
	answers := remotetest.NewTLS(t, "ns/answers:443", remotetest.Answers(http.StatusOK, "application/json", "{}"))
	f := remote.NewFetcher(1)
	ctx, cancel := context.WithCancel(t.Context())
	stalled := make(chan error, 1)
	go func() {
		_, err := f.Fetch(ctx, stalls, request())
		stalled <- err
	}()
	<-started
	defer func() { cancel(); <-stalled }()

	q := request()
	q.Timeout = 30 * time.Millisecond
	deadline := time.Now().Add(time.Minute)
	for {
		_, err := f.Fetch(t.Context(), answers, q)
		if errors.Is(err, context.DeadlineExceeded) {
			return // the slot is taken, and the fetch ended at its deadline
		}
		if time.Now().After(deadline) {
			t.Fatalf("no fetch waited for the slot within a minute: last error = %v, want %v", err, context.DeadlineExceeded)
		}
	}
}

// One backend with many group-versions whose bodies do not arrive once used all slots for bodies.
func TestA53SlowBodiesDoNotDelayOtherBackends(t *testing.T) {
	const places = 4
	begun := make(chan struct{}, places)
	slow := remotetest.NewTLS(t, "ns/slow:443", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		begun <- struct{}{}
		<-r.Context().Done()
	}))
	healthy := remotetest.NewTLS(t, "ns/healthy:443", remotetest.Answers(http.StatusOK, "application/json", "{}"))
	f := remote.NewFetcher(places)
	ctx, cancel := context.WithCancel(t.Context())
	var slowFetches sync.WaitGroup
	defer slowFetches.Wait()
	defer cancel()
	q := request()
	q.Timeout = time.Minute
	for range places {
		slowFetches.Go(func() { _, _ = f.Fetch(ctx, slow, q) }) // they end with ctx
	}
	for range places {
		<-begun
	}
	for i := range 20 { // some of them can get a slot before the slow bodies have all slots
		if _, err := f.Fetch(t.Context(), healthy, q); err != nil {
			t.Fatalf("fetch %d from a healthy backend failed: %v, want no error", i, err)
		}
	}
}
