package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"portico.dev/internal/httpengine/enginetest"
)

// sickness controls how a test server misbehaves.
type sickness struct {
	hangs  atomic.Bool
	delay  atomic.Int64
	status atomic.Int64
	served atomic.Int64 // requests without checks
}

func (s *sickness) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != checkPath {
		s.served.Add(1)
	}
	if r.URL.Path == "/watch" {
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, "event\n")
			_ = http.NewResponseController(w).Flush()
			linger(r, 100*time.Millisecond)
		}
		return
	}
	if s.hangs.Load() {
		<-r.Context().Done()
		return
	}
	linger(r, time.Duration(s.delay.Load()))
	if code := s.status.Load(); code != 0 && r.URL.Path != checkPath {
		w.WriteHeader(int(code))
		return
	}
	_, _ = io.WriteString(w, "ok")
}

// linger waits, unless the client disconnects.
func linger(r *http.Request, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
}

// usual is the response time of healthy servers. Without it, clients that send requests in a loop would leave a synctest bubble no time to advance.
const usual = 20 * time.Millisecond

func newSickness() *sickness {
	s := &sickness{}
	s.delay.Store(int64(usual))
	return s
}

// three serves a backend at three endpoints in memory. The first one becomes unhealthy. It is for synctest bubbles.
func three(t *testing.T, proto string) (*Backend, *sickness, string) {
	n := newMemoryNetwork(newTestEnv(t))
	sick := newSickness()
	first, second, third := n.serveProto(sick, proto), n.serveProto(newSickness(), proto), n.serveProto(newSickness(), proto)
	b := n.backend(first, second, third)
	for sick.served.Load() == 0 {
		if _, err := get(t, b); err != nil {
			t.Fatal(err)
		}
	}
	return b, sick, first
}

// clients send GET requests sequentially until f returns. They return a failure, and the number of slow responses of each client.
func clients(t *testing.T, b *Backend, n int, f func()) (slow []int, failed error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	slow = make([]int, n)
	for i := range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://ignored/things", nil)
				resp, err := b.RoundTrip(r)
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body) // allows an HTTP/1.1 connection to be reused
					_ = resp.Body.Close()
					if resp.StatusCode != http.StatusOK {
						err = errors.New(resp.Status)
					}
				}
				mu.Lock()
				if err != nil && ctx.Err() == nil && failed == nil {
					failed = err
				}
				if time.Since(began) > slowResponse {
					slow[i]++
				}
				mu.Unlock()
			}
		})
	}
	f()
	cancel()
	wg.Wait()
	return slow, failed
}

// watchAll opens a watch with events at every endpoint.
func watchAll(t *testing.T, b *Backend) {
	t.Helper()
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); wg.Wait() })
	for _, e := range b.Endpoints() {
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://ignored/watch", nil)
		resp, err := attemptAt(b, e.Address, r)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			_, _ = io.Copy(io.Discard, resp.Body) // until the test ends
			_ = resp.Body.Close()
		})
	}
}

// attemptAt sends a client's request to one endpoint.
func attemptAt(b *Backend, address string, r *http.Request) (*http.Response, error) {
	e := b.endpoint(address)
	a := attempts{b: b, pool: (*endpoint).requestPool, request: r, observer: noObserver{}, count: 1}
	out, err := a.prepare(e)
	if err != nil {
		return nil, err
	}
	return a.send(e, out)
}

func ejectedFor(b *Backend, address string) string {
	for _, e := range b.Ejected() {
		if e.Address == address {
			return e.Reason
		}
	}
	return ""
}

func TestFailingEndpointOfThreeIsEjectedAndReturns(t *testing.T) {
	for _, proto := range []string{"h2", "http/1.1"} {
		for name, c := range map[string]struct {
			fall, recover func(*sickness)
			reason        string
		}{
			"hangs":  {func(s *sickness) { s.hangs.Store(true) }, func(s *sickness) { s.hangs.Store(false) }, "none is answered"},
			"slow":   {func(s *sickness) { s.delay.Store(int64(1500 * time.Millisecond)) }, func(s *sickness) { s.delay.Store(int64(usual)) }, "responses take 1"},
			"errors": {func(s *sickness) { s.status.Store(503) }, func(s *sickness) { s.status.Store(0) }, "status 503"},
		} {
			t.Run(proto+"/"+name, func(t *testing.T) {
				t.Parallel()
				if proto == "http/1.1" && name == "hangs" {
					enginetest.NotOnLibraryBackend(t, "requests that wait over HTTP/1.1 at an endpoint that is ejected")
				}
				synctest.Test(t, func(t *testing.T) {
					b, sick, address := three(t, proto)
					watchAll(t, b)
					slow, failed := clients(t, b, 8, func() {
						c.fall(sick)
						eventually(t, 15*time.Second, "the endpoint is ejected", func() bool { return ejectedFor(b, address) != "" })
						if why := ejectedFor(b, address); !strings.Contains(why, c.reason) {
							t.Errorf("reason of the ejection = %s, want %q", why, c.reason)
						}
						c.recover(sick)
						before := sick.served.Load()
						eventually(t, 30*time.Second, "the endpoint is used again", func() bool {
							return ejectedFor(b, address) == "" && sick.served.Load() > before+10
						})
					})
					if failed != nil {
						t.Errorf("GET during the failure of one endpoint failed: %v, want no error", failed)
					}
					for i, n := range slow {
						if n > 1 {
							t.Errorf("slow responses of client %d = %d, want at most 1", i, n)
						}
					}
				})
			})
		}
	}
}

// For clients that send few requests, one slow response is enough if a check is slow too.
func TestSlowCheckAndOneSlowResponseEjectEndpoint(t *testing.T) {
	for _, proto := range []string{"h2", "http/1.1"} {
		t.Run(proto, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, sick, address := three(t, proto)
				things, _ := http.NewRequest(http.MethodGet, "https://ignored/things", nil)
				slow, failed := clients(t, b, 1, func() {
					eventually(t, 10*time.Second, "it is known how long others take", func() bool {
						_, known := b.comparison.responseOfAnother(things, b.endpoint(address), time.Now())
						return known
					})
					sick.delay.Store(int64(1500 * time.Millisecond))
					before := sick.served.Load()
					eventually(t, 15*time.Second, "the endpoint is ejected", func() bool { return ejectedFor(b, address) != "" })
					if n := sick.served.Load() - before; n > 1 {
						t.Errorf("slow responses before the ejection = %d, want at most 1", n)
					}
					if why := ejectedFor(b, address); !strings.Contains(why, "responses take 1") {
						t.Errorf("reason of the ejection = %s, want \"responses take 1\"", why)
					}
				})
				if failed != nil || slow[0] > 1 {
					t.Errorf("slow responses = %d with the failure %v, want at most 1 and none", slow[0], failed)
				}
			})
		})
	}
}

func TestAtMostHalfOfEndpointsAreEjected(t *testing.T) {
	w := newTestEnv(t)
	b := w.backend(w.set(), w.serve(text("1")).address, w.serve(text("2")).address, w.serve(text("3")).address)
	all := b.Endpoints()
	differs := errors.New("it differs")
	if !b.Suspend(all[0].Address, differs) || b.Suspend(all[0].Address, differs) {
		t.Error("Suspend of the first endpoint did not return true and then false, want one suspension")
	}
	if b.Suspend(all[1].Address, differs) {
		t.Error("Suspend of a second endpoint of three = true, want false")
	}
	if b.Suspend("192.0.2.1:443", differs) {
		t.Error("Suspend of an unknown endpoint = true, want false")
	}
	for range 50 {
		if body, err := get(t, b); err != nil || body == "1" {
			t.Fatalf("GET while the first endpoint is suspended = %q with the error %v, want another endpoint", body, err)
		}
	}
	b.Reinstate(all[0].Address)
	eventually(t, 30*time.Second, "it is used again", func() bool {
		body, err := get(t, b)
		return err == nil && body == "1"
	})
	if list := b.Ejected(); len(list) != 0 {
		t.Errorf("ejected endpoints after Reinstate = %+v, want none", list)
	}
	one := w.backend(w.set(), w.serve(text("only")).address)
	if one.Suspend(one.Endpoints()[0].Address, differs) {
		t.Error("Suspend of the only endpoint = true, want false")
	}
}

// A large list that is slow at every endpoint does not eject one of them.
func TestResponseSlowOnAllEndpointsEjectsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemoryNetwork(newTestEnv(t))
		slow := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/list" {
				linger(r, 600*time.Millisecond)
			} else {
				linger(r, usual)
			}
			_, _ = io.WriteString(rw, "ok")
		})
		b := n.backend(n.serveProto(slow, "h2"), n.serveProto(slow, "h2"))
		_, failed := clients(t, b, 2, func() {
			for range 12 {
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://ignored/list", nil)
				resp, err := b.RoundTrip(r)
				if err != nil {
					t.Error(err)
					return
				}
				_ = resp.Body.Close()
			}
		})
		if list := b.Ejected(); len(list) != 0 || failed != nil {
			t.Errorf("ejected endpoints = %+v with the failure %v, want none", list, failed)
		}
	})
}

// The proxy sends the path in URL.Opaque, as its client spelled it.
func TestRequestsForDifferentPathsAreNotCompared(t *testing.T) {
	var c comparison
	kind := func(u url.URL) uint64 { return c.kindOf(&http.Request{Method: http.MethodGet, URL: &u}) }
	one := kind(url.URL{Opaque: "/apis/g/v1/namespaces/a/pods/b"})
	if same := kind(url.URL{Path: "/apis/g/v1/namespaces/c/pods/d"}); same != one {
		t.Error("two single pods are different kinds of requests, want one kind")
	}
	if list := kind(url.URL{Opaque: "/apis/g/v1/pods"}); list == one {
		t.Error("a list and a single pod are one kind of request, want two kinds")
	}
}
