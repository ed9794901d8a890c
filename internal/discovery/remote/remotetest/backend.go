// Package remotetest provides extension servers for the tests of packages that fetch documents: servers behind TLS with a
// behaviour that can be changed while they run, and servers without a socket for tests with simulated time.
package remotetest

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Backend is an extension server.
type Backend struct {
	name      string
	handler   atomic.Pointer[http.Handler]
	transport http.RoundTripper

	renewals atomic.Int32

	mu       sync.Mutex
	requests []*http.Request
}

// NewTLS starts a server on a free port. It ends with the test.
func NewTLS(t testing.TB, name string, h http.Handler) *Backend {
	b := &Backend{name: name}
	b.Become(h)
	server := httptest.NewTLSServer(http.HandlerFunc(b.serve))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections) // before Close, which waits for handlers that hang until their client disconnects
	to, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	b.transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.URL.Host = to.Host
		return server.Client().Transport.RoundTrip(r)
	})
	return b
}

// NewInProcess returns a server without a socket, for use in synctest bubbles.
func NewInProcess(name string, h http.Handler) *Backend {
	b := &Backend{name: name}
	b.Become(h)
	b.transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		b.serve(w, r)
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
		return w.Result(), nil
	})
	return b
}

// Become replaces the handler for all further requests.
func (b *Backend) Become(h http.Handler) { b.handler.Store(&h) }

// Name implements remote.Backend.
func (b *Backend) Name() string { return b.name }

// Probe implements remote.Backend.
func (b *Backend) Probe() http.RoundTripper { return b.transport }

// RenewProbes implements remote.Backend.
func (b *Backend) RenewProbes() { b.renewals.Add(1) }

// Renewals returns how often RenewProbes was called.
func (b *Backend) Renewals() int { return int(b.renewals.Load()) }

// Requests returns the requests that the server has received so far.
func (b *Backend) Requests() []*http.Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]*http.Request(nil), b.requests...)
}

func (b *Backend) serve(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	b.requests = append(b.requests, r)
	b.mu.Unlock()
	(*b.handler.Load()).ServeHTTP(w, r)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Hangs returns a handler that never answers.
func Hangs() http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
}

// Answers returns a handler with a fixed response.
func Answers(code int, contentType, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	})
}

// Redirects returns a handler that redirects every request to another server.
func Redirects(to string) http.Handler {
	return http.RedirectHandler(to, http.StatusFound)
}

// Floods returns a handler that answers with a body of the given size.
func Floods(size int, contentType string) http.Handler {
	return Answers(http.StatusOK, contentType, strings.Repeat(" ", size))
}

// Paths answers each path by its handler and any other path with 404.
type Paths map[string]http.Handler

func (p Paths) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h, ok := p[r.URL.Path]; ok {
		h.ServeHTTP(w, r)
		return
	}
	http.NotFoundHandler().ServeHTTP(w, r)
}
