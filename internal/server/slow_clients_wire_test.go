package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/routetable"
	"portico.dev/internal/transport"
)

// largerThanSocketBuffers is a response that no kernel buffers completely.
var largerThanSocketBuffers = make([]byte, 24<<20)

// untaken writes long responses, or short ones on request, and counts the long ones.
type untaken struct{ begun, ended atomic.Int64 }

func (u *untaken) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Has("small") {
		_, _ = io.WriteString(w, "small")
		return
	}
	u.begun.Add(1)
	defer u.ended.Add(1)
	w.Header().Set("Content-Length", strconv.Itoa(len(largerThanSocketBuffers)))
	_, _ = w.Write(largerThanSocketBuffers)
}

// stallHTTP2 requests path on many streams of several connections whose windows stay closed.
func (l *listening) stallHTTP2(t *testing.T, name, path string, conns, streams int) {
	t.Helper()
	for range conns {
		a := l.attack(t)
		_ = a.conn.SetDeadline(time.Now().Add(2 * time.Minute))
		if err := a.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
			t.Fatal(err)
		}
		over := a.drain()
		t.Cleanup(func() { _ = a.conn.NetConn().Close(); <-over })
		for range streams {
			if err := a.openPath(name, path); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (a *attacker) openPath(name, path string) error {
	id := a.stream
	a.stream += 2
	a.block.Reset()
	for _, f := range [][2]string{
		{":method", "GET"}, {":scheme", "https"}, {":authority", "a"}, {":path", path}, {"test-user", name}, {"test-group", user.AllAuthenticated},
	} {
		_ = a.encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	return a.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: bytes.Clone(a.block.Bytes()), EndHeaders: true, EndStream: true})
}

// stallHTTP1 requests path on connections that are never read.
func (l *listening) stallHTTP1(t *testing.T, name, path string, conns int) {
	t.Helper()
	for range conns {
		c := l.secure(t, "http/1.1")
		if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: a\r\nTest-User: %s\r\nTest-Group: %s\r\n\r\n", path, name, user.AllAuthenticated); err != nil {
			t.Fatal(err)
		}
	}
}

// bystander sends an ordinary request of another user until it is served or the time is up, and returns the last status code.
func (l *listening) bystander(t *testing.T, path string) (code int, took time.Duration) {
	t.Helper()
	client := l.client(t, true)
	began := time.Now()
	for code != http.StatusOK && time.Since(began) < 12*time.Second {
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+l.address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Test-User", "jane")
		r.Header.Set("Test-Group", user.AllAuthenticated)
		res, err := client.Do(r)
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			if code = res.StatusCode; err != nil {
				code = 0
			}
		}
		cancel()
	}
	return code, time.Since(began)
}

// One user leaves as many responses unread as possible. Requests of other users at the same priority level, or under the same limit on
// requests in flight, and requests to the same backend are still served.
func TestD14UnreadResponsesDoNotBlockOtherUsers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const local, remote = "/api/v1/namespaces/n/configmaps", "/apis/up.example.com/v1/namespaces/n/foos"
	const waiting = 8 // so many responses fit in one user's share of 256 MiB
	stalls := map[string]func(*testing.T, *listening, string){
		"over HTTP/2 with windows of nothing": func(t *testing.T, l *listening, path string) {
			l.stallHTTP2(t, "mallory", path, 4, 90)
		},
		"over HTTP/1.1 unread": func(t *testing.T, l *listening, path string) { l.stallHTTP1(t, "mallory", path, 60) },
	}
	bounds := map[string]struct {
		path    string
		begun   int64 // responses that have begun when no seat or place is free
		prepare func(*testing.T, *bench, *untaken)
	}{
		"seats of a priority level": {local, 24, func(t *testing.T, b *bench, h *untaken) {
			b.useFairness(t, 24, nil)
			b.handler = h.ServeHTTP
		}},
		"requests in flight": {local, 20, func(_ *testing.T, b *bench, h *untaken) {
			b.config.MaxInFlight = 20
			b.handler = h.ServeHTTP
		}},
		"places of a backend": {remote, 20, func(t *testing.T, b *bench, h *untaken) {
			b.remote(t, routetable.Options{}, h, func(o *transport.Options) { o.MaxInFlight = 40 })
		}},
	}
	for bound, test := range bounds {
		for stall, attack := range stalls {
			t.Run(bound+", "+stall, func(t *testing.T) {
				b := newBench("jane *", "mallory *")
				h := &untaken{}
				test.prepare(t, b, h)
				l := b.listen(t, time.Second)
				if code, _ := l.bystander(t, test.path+"?small"); code != http.StatusOK {
					t.Fatalf("GET %s before the attack = %d, want 200", test.path, code)
				}
				attack(t, l, test.path)
				// A level borrows seats every ten seconds. Until then, or until none are left, other requests would be served.
				for deadline := time.Now().Add(22 * time.Second); h.begun.Load() < test.begun && time.Now().Before(deadline); {
					<-time.After(5 * time.Millisecond)
				}
				var all sync.WaitGroup
				for range 3 {
					all.Go(func() {
						code, took := l.bystander(t, test.path+"?small")
						if code != http.StatusOK {
							t.Errorf("GET %s of another user during the attack = %d after %s, want 200", test.path, code, took)
						}
						t.Logf("another user was served after %s", took)
					})
				}
				all.Wait()
				// Responses beyond the limit for waiting responses are broken off after a second.
				if n := h.begun.Load() - h.ended.Load(); n < waiting {
					t.Errorf("unread responses that still run = %d of %d, want at least %d: the attack has no effect", n, h.begun.Load(), waiting)
				}
			})
		}
	}
}

// The request's deadline applies to the complete response of a local handler, even if the client opens the window by a few bytes now
// and then, or never.
func TestD14TricklingReaderIsClosedAtRequestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench("mallory *")
		b.memory = true
		b.config.RequestTimeout = time.Second
		ended := make(chan error, 1)
		b.handler = func(w http.ResponseWriter, _ *http.Request) {
			var err error
			for err == nil {
				_, err = w.Write(largerThanSocketBuffers[:8<<10])
			}
			ended <- err
		}
		l := b.listen(t, time.Second, func(s *Server) { s.limits.stall = 2 * time.Second })
		a := l.attack(t)
		_ = a.conn.SetDeadline(time.Now().Add(time.Minute))
		if err := a.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
			t.Fatal(err)
		}
		over := a.drain()
		t.Cleanup(func() { _ = a.conn.NetConn().Close(); <-over })
		if err := a.openPath("mallory", "/api/v1/configmaps"); err != nil {
			t.Fatal(err)
		}
		drip := time.NewTicker(20 * time.Millisecond)
		defer drip.Stop()
		limit := time.After(50 * time.Second)
		for {
			select {
			case err := <-ended:
				if err == nil {
					t.Error("response to a client that reads slowly ended without an error, want the deadline")
				}
				return
			case <-limit:
				t.Fatal("response is still being written after 50 seconds, want the deadline to end it")
			case <-drip.C:
				_ = a.WriteWindowUpdate(0, 1000)
				_ = a.WriteWindowUpdate(1, 1000)
			}
		}
	})
}

// Data that the server sends after the handler returned has a deadline, too. A watch has none.
func TestD14UnreadResponseAfterHandlerReturnExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench("mallory *")
		b.memory = true
		l := b.listen(t, time.Second, func(s *Server) { s.limits.stall = time.Second })
		a := l.attack(t)
		_ = a.conn.SetDeadline(time.Now().Add(time.Minute))
		if err := a.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
			t.Fatal(err)
		}
		if err := a.openPath("mallory", "/api/v1/configmaps?watch=1"); err != nil {
			t.Fatal(err)
		}
		if err := a.openPath("mallory", "/api/v1/configmaps"); err != nil {
			t.Fatal(err)
		}
		for {
			f, err := a.ReadFrame()
			if err != nil {
				t.Fatalf("reading frames failed: %v, want RST_STREAM for the response", err)
			}
			if f, ok := f.(*http2.RSTStreamFrame); ok {
				if f.StreamID != 3 {
					t.Errorf("reset stream = %d, want 3", f.StreamID)
				}
				return
			}
		}
	})
}
