package proxy

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap/zapcore"

	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/transport"
)

func TestResponseHeaders(t *testing.T) {
	w := newTestEnv(t, Config{}, transport.Options{})
	w.prepare = func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("X-Kubernetes-Pf-Flowschema-Uid", "ours")
		rw.Header().Set("Vary", "Origin")
		rw.Header().Set("Warning", `299 - "ours"`)
		rw.Header().Set("Access-Control-Allow-Origin", "https://ours.example")
		rw.Header().Set("Access-Control-Expose-Headers", "Date")
	}
	w.backend(w.serve(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		for name, value := range map[string]string{
			"Cache-Control": "public, immutable", "Etag": `"e"`, "Audit-Id": "theirs", "X-Kubernetes-Pf-Flowschema-Uid": "theirs",
			"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Credentials": "true", "Access-Control-Allow-Methods": "GET",
			"Access-Control-Allow-Headers": "*", "Set-Cookie": "a=b", "Refresh": "0;url=https://evil.example", "Location": "https://evil.example/",
			"Access-Control-Expose-Headers": "X-Theirs", "Vary": "Accept", "Warning": `299 - "theirs"`, "X-Theirs": "kept", "Content-Type": "application/json",
		} {
			rw.Header().Set(name, value)
		}
		_, _ = io.WriteString(rw, "{}")
	})))
	h := w.get(resource).Header
	h.Del("Date")
	for name, values := range map[string][]string{
		"Cache-Control": {"public, immutable"}, "Etag": {`"e"`}, "Audit-Id": {"audit-1"}, "X-Kubernetes-Pf-Flowschema-Uid": {"ours"},
		"Access-Control-Allow-Origin": {"https://ours.example"}, "Access-Control-Expose-Headers": {"Date", "X-Theirs"}, "Vary": {"Origin", "Accept"},
		"Warning": {`299 - "ours"`, `299 - "theirs"`}, "X-Theirs": {"kept"}, "Content-Type": {"application/json"}, "Content-Length": {"2"},
	} {
		if !slices.Equal(h[name], values) {
			t.Errorf("%s = %q, want %q", name, h[name], values)
		}
		delete(h, name)
	}
	if len(h) > 0 {
		t.Errorf("further headers = %v, want none", h)
	}
}

func TestA5BackendRedirectsAreRejected(t *testing.T) {
	w := newTestEnv(t, Config{}, transport.Options{})
	w.backend(w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		code := 0
		_, _ = fmt.Sscan(r.URL.Query().Get("code"), &code)
		for _, name := range []string{"Location", "Refresh"} {
			if v := r.URL.Query().Get(name); v != "" {
				rw.Header().Set(name, v)
			}
		}
		rw.WriteHeader(code)
	})))
	const evil = "&Location=https://evil.example/"
	tests := []struct {
		name, query string
		conditional bool
		want        int
		location    string
	}{
		{"moved", "301" + evil, false, 502, ""},
		{"found", "302" + evil, false, 502, ""},
		{"see other", "303" + evil, false, 502, ""},
		{"temporary", "307" + evil, false, 502, ""},
		{"permanent", "308" + evil, false, 502, ""},
		{"multiple choices", "300" + evil, false, 502, ""},
		{"to our own origin", "302&Location=/apis", false, 502, ""},
		{"without Location", "302", false, 502, ""},
		{"by Refresh", "302&Refresh=0", false, 502, ""},
		{"not modified", "304", true, 304, ""},
		{"not modified, though nobody asked", "304", false, 502, ""},
		{"not modified, with Location", "304" + evil, true, 502, ""},
		{"created elsewhere", "201" + evil, false, 201, ""},
		{"created elsewhere, without a scheme", "201&Location=//evil.example/", false, 201, ""},
		{"created here", "201&Location=/apis/g/v/foos/a", false, 201, "/apis/g/v/foos/a"},
		{"forbidden, with Location", "403" + evil, false, 403, ""},
		{"success, with Refresh", "200&Refresh=0", false, 200, ""},
	}
	for _, test := range tests {
		for _, path := range []string{"/apis/metrics.example.com/v1", resource, "/apis/metrics.example.com/v1/nodes"} {
			t.Run(test.name+" "+path, func(t *testing.T) {
				r := w.request(http.MethodGet, path+"?code="+test.query, nil)
				if test.conditional {
					r.Header.Set("If-None-Match", `"e"`)
				}
				a := w.do(w.client(), r)
				if a.StatusCode != test.want || a.Header.Get("Location") != test.location || a.Header.Get("Refresh") != "" {
					t.Errorf("response = %s with headers %v, want %d, Location %q and no Refresh", a.Status, a.Header, test.want, test.location)
				}
				if test.want == 502 {
					if s := a.status(t); s.Reason != "BackendRedirect" || strings.Contains(a.body, "evil") {
						t.Errorf("body = %s, want reason BackendRedirect without the target", a.body)
					}
				}
			})
		}
	}
}

func TestStreamOutlivesDeadlineAndIdleTimeout(t *testing.T) {
	for _, proto := range []string{"h2", "http/1.1"} {
		for _, path := range []string{"/apis/metrics.example.com/v1/nodes?watch=1", "/apis/metrics.example.com/v1/nodes/a/console"} {
			t.Run(proto+" "+path, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newMemoryEnv(t, Config{BodyIdle: 50 * time.Millisecond}, transport.Options{})
					const deadline = time.Second
					events, left := make(chan string), make(chan struct{})
					w.backend(w.serveProtos(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
						if r.URL.RequestURI() != path {
							return
						}
						defer close(left)
						rw.(http.Flusher).Flush()
						for {
							select {
							case e := <-events:
								_, _ = io.WriteString(rw, e+"\n")
								rw.(http.Flusher).Flush()
							case <-r.Context().Done():
								return
							}
						}
					}), proto))
					if a := w.get(resource); a.StatusCode != 200 { // connects, so that the requests below do not
						t.Fatalf("first GET = %s, want 200", a.Status)
					}
					w.mu.Lock()
					w.deadline = deadline
					w.mu.Unlock()
					resp, err := w.client().Do(w.request(http.MethodGet, path, nil)) // headers arrive before the first event
					if err != nil || resp.StatusCode != 200 {
						t.Fatalf("response = %v, error %v, want 200", resp, err)
					}
					lines := bufio.NewReader(resp.Body)
					next := func(event string) {
						t.Helper()
						select {
						case events <- event:
						case <-time.After(30 * time.Second):
							t.Fatalf("the backend did not write within 30s, want it to write %q", event)
						}
						if line, err := lines.ReadString('\n'); err != nil || line != event+"\n" {
							t.Fatalf("line = %q, error %v, want %q", line, err, event+"\n")
						}
					}
					next("one")
					timer := time.NewTimer(deadline + 200*time.Millisecond) // also beyond the idle limit
					<-timer.C
					next("two")
					_ = resp.Body.Close()
					select {
					case <-left:
					case <-time.After(30 * time.Second):
						t.Error("the backend's request is not cancelled within 30s after the client left, want it cancelled")
					}
				})
			})
		}
	}
}

func TestDeadlineBeforeHeadersReturns504(t *testing.T) {
	for _, proto := range []string{"h2", "http/1.1"} {
		t.Run(proto, func(t *testing.T) {
			w := newTestEnv(t, Config{HeaderTimeout: 150 * time.Millisecond}, transport.Options{})
			w.deadline = 150 * time.Millisecond
			var begun, left atomic.Int64
			w.backend(w.serveProtos(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				begun.Add(1)
				<-r.Context().Done()
				left.Add(1)
			}), proto))
			for _, path := range []string{resource, "/apis/metrics.example.com/v1/nodes?watch=1"} {
				before := begun.Load()
				eventually(t, time.Minute, "the backend is asked in time", func() bool {
					start := time.Now()
					a := w.get(path)
					if s := a.status(t); a.StatusCode != 504 || s.Reason != "Timeout" || a.Header.Get("Retry-After") != "" {
						t.Errorf("response = %s %s, want 504 Timeout without Retry-After", a.Status, a.body)
					}
					if took := time.Since(start); took > time.Minute {
						t.Errorf("the response took %s, want at most a minute", took)
					}
					return begun.Load() > before // the deadline can pass while the connection is established
				})
				eventually(t, time.Minute, "the backend learns of it", func() bool { return left.Load() == begun.Load() })
			}
		})
	}
}

// A backend whose request was cancelled may end its response as if it were complete. That response must not be used.
func TestResponseAfterDeadlineIsDiscarded(t *testing.T) {
	late := func(*transport.Backend) { <-time.After(500 * time.Millisecond) } // the transport has the response, and the proxy does not yet
	w := newTestEnv(t, Config{}, transport.Options{OnSuccess: late})
	w.deadline = 200 * time.Millisecond
	w.backend(w.serve(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	if a := w.get(resource); a.StatusCode != http.StatusGatewayTimeout || a.status(t).Reason != "Timeout" {
		t.Errorf("response = %s %s, want 504 Timeout", a.Status, a.body)
	}
}

// A response that cannot be completed must not look complete.
func TestA28BrokenBodyDoesNotLookComplete(t *testing.T) {
	raw := func(text string) func(*testEnv) string {
		return func(w *testEnv) string {
			return w.raw("http/1.1", func(c *tls.Conn) {
				if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					_, _ = io.WriteString(c, text)
				}
			})
		}
	}
	handler := func(h http.HandlerFunc) func(*testEnv) string { return func(w *testEnv) string { return w.serve(h) } }
	tests := []struct {
		name    string
		backend func(*testEnv) string
	}{
		{"shorter than it said", raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort")},
		{"chunk cut off", raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nshort")},
		{"no last chunk", raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n")},
		{"malformed chunk", raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\nzz\r\n")},
		{"stream reset", handler(func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(rw, "short")
			rw.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		})},
		{"stream reset within a known length", handler(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Length", "100000")
			_, _ = io.WriteString(rw, "short")
			rw.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		})},
		{"silence within a known length", handler(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(rw, "short")
			rw.(http.Flusher).Flush()
			<-r.Context().Done()
		})},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newTestEnv(t, Config{BodyIdle: 200 * time.Millisecond}, transport.Options{})
			w.backend(test.backend(w))
			for _, c := range []*http.Client{w.client(), w.client("http/1.1")} {
				resp, err := c.Do(w.request(http.MethodGet, resource, nil))
				if err != nil {
					continue // broken before the first byte was sent
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusOK || err == nil {
					t.Errorf("response = %s with body %q and no error, want an error", resp.Status, body)
				}
			}
			eventually(t, time.Minute, "logged", func() bool { return w.logs.FilterMessage("backend response ended prematurely").Len() == 2 })
		})
	}
}

// A short response is sent only when it is complete. If it breaks off, its client receives an error.
func TestA28BrokenShortResponseReturnsError(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		w := newTestEnv(t, Config{}, transport.Options{})
		var asked atomic.Int64
		w.backend(w.serve(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			rw.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(rw, "short")
			rw.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		})))
		resp, err := w.client().Do(w.request(method, resource, strings.NewReader("{}")))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable || err != nil || !strings.Contains(string(body), `"ConnectionLost"`) {
			t.Errorf("%s: response = %s %s, error %v, want 503 with ConnectionLost", method, resp.Status, body, err)
		}
		if n := asked.Load(); method == http.MethodPost && n != 1 {
			t.Errorf("a POST was sent %d times, want 1", n)
		}
	}
}

func TestA28BytesBeyondContentLengthAreDropped(t *testing.T) {
	w := newTestEnv(t, Config{}, transport.Options{})
	w.backend(w.raw("http/1.1", func(c *tls.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
		}
	}))
	for range 5 {
		if a := w.get(resource); a.body != "ok" || a.err != nil {
			t.Errorf("body = %q, error %v, want %q: the excess must not answer another request", a.body, a.err, "ok")
		}
	}
}

// An ambiguous response over HTTP/1.1 is refused, its request is sent once, and other requests are not affected.
func TestA28AmbiguousResponseIsRejected(t *testing.T) {
	const ok, well = "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwell"
	for name, text := range map[string]string{
		"folded":                 ok + "X: a\r\n b\r\nContent-Length: 0\r\n\r\n",
		"bare LF":                ok + "X: a\nContent-Length: 0\r\n\r\n",
		"blank before the colon": ok + "Content-Length : 2\r\n\r\nok",
		"switched":               "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
		"two lengths":            ok + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nok",
		"length and coding":      ok + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"no status line":         "ok\r\n\r\n",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			t.Run(name+" "+method, func(t *testing.T) {
				switch name {
				case "folded", "bare LF", "two lengths", "length and coding":
					enginetest.NotOnLibraryBackend(t, "malformed responses over HTTP/1.1")
				}
				w := newTestEnv(t, Config{}, transport.Options{})
				var asked atomic.Int64
				b := w.backend(w.raw("http/1.1", func(c *tls.Conn) {
					in := bufio.NewReader(c)
					for {
						r, err := http.ReadRequest(in)
						if err != nil {
							return
						}
						_, _ = io.Copy(io.Discard, r.Body)
						answer := well
						if r.URL.Query().Has("lie") {
							asked.Add(1)
							answer = text
						}
						_, _ = io.WriteString(c, answer)
					}
				}))
				if a := w.get(resource); a.body != "well" {
					t.Fatalf("first GET = %s %q, want %q", a.Status, a.body, "well")
				}
				a := w.do(w.client(), w.request(method, resource+"?lie", strings.NewReader("{}")))
				if s := a.status(t); a.StatusCode != http.StatusBadGateway || s.Reason != "BackendProtocol" || strings.Contains(a.body, "malformed") {
					t.Errorf("response = %s %s, want 502 BackendProtocol", a.Status, a.body)
				}
				if n := asked.Load(); n != 1 {
					t.Errorf("the request was sent %d times, want 1", n)
				}
				if state := b.Report().Endpoints[0].State; state != "well" {
					t.Errorf("state of the endpoint = %s, want well", state)
				}
				if a := w.get(resource); a.body != "well" {
					t.Errorf("GET afterwards = %s %q, want %q", a.Status, a.body, "well")
				}
			})
		}
	}
}

func TestResponseTrailersAreForwarded(t *testing.T) {
	for _, announced := range []bool{true, false} {
		t.Run(fmt.Sprintf("announced %t", announced), func(t *testing.T) {
			w := newTestEnv(t, Config{}, transport.Options{})
			w.backend(w.serve(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				name := "X-Checksum"
				if announced {
					rw.Header().Set("Trailer", name)
				} else {
					name = http.TrailerPrefix + name
				}
				_, _ = io.WriteString(rw, "body")
				rw.(http.Flusher).Flush()
				rw.Header().Set(name, "abc")
			})))
			for _, c := range []*http.Client{w.client(), w.client("http/1.1")} {
				if a := w.do(c, w.request(http.MethodGet, resource, nil)); a.body != "body" || a.Trailer.Get("X-Checksum") != "abc" {
					t.Errorf("body = %q with trailer %v, want %q with X-Checksum abc", a.body, a.Trailer, "body")
				}
			}
		})
	}
}

// A backend can neither set fields that apply to the whole origin, nor fields that name an identity: not in a header, not in a
// trailer, not in an interim response.
func TestA34OriginAndIdentityFieldsOfBackendAreDropped(t *testing.T) {
	withheld := []string{"X-Remote-User", "x_remote.group", "X-Remote-Extra-Scopes", "Impersonate-User", "IMPERSONATE.GROUP", "Front-Proxy-User", "front.proxy_extra!a",
		"Alt-Svc", "alt_svc", "Strict-Transport-Security", "Clear-Site-Data", "Public-Key-Pins", "Expect-Ct", "Nel", "Report-To", "Reporting-Endpoints",
		"Service-Worker-Allowed", "Set-Cookie", "Access-Control-Allow-Origin", "Proxy-Authenticate"}
	for _, announced := range []bool{true, false} {
		for _, proto := range []string{"h2", "http/1.1"} {
			t.Run(fmt.Sprintf("%s, trailers announced %t", proto, announced), func(t *testing.T) {
				w := newTestEnv(t, Config{IdentityHeaders: []string{"Front-Proxy-User"}, IdentityHeaderPrefixes: []string{"Front-Proxy-Extra-"}}, transport.Options{})
				w.backend(w.serveProtos(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
					h := rw.Header()
					for _, name := range withheld {
						h[name] = []string{"interim"}
					}
					rw.WriteHeader(http.StatusEarlyHints)
					for _, name := range withheld {
						h[name] = []string{"header"}
						if announced {
							h.Add("Trailer", name)
						}
					}
					h["X-Mine"] = []string{"header"}
					if announced {
						h.Add("Trailer", "X-Checksum")
					}
					_, _ = io.WriteString(rw, "body")
					rw.(http.Flusher).Flush()
					prefix := ""
					if !announced {
						prefix = http.TrailerPrefix
					}
					for _, name := range append([]string{"X-Checksum"}, withheld...) {
						h[prefix+name] = []string{"trailer"}
					}
				}), proto))
				w.prepare = func(rw http.ResponseWriter, _ *http.Request) { rw.Header().Set("Strict-Transport-Security", "ours") }
				for _, c := range []*http.Client{w.client(), w.client("http/1.1")} {
					var interim []string
					trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
						interim = append(interim, fmt.Sprint(code, h))
						return nil
					}}
					r := w.request(http.MethodGet, resource, nil)
					a := w.do(c, r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
					if a.body != "body" || a.Header.Get("X-Mine") != "header" || a.Trailer.Get("X-Checksum") != "trailer" {
						t.Errorf("response = %q, header %v, trailer %v, want X-Mine header and X-Checksum trailer", a.body, a.Header, a.Trailer)
					}
					if got := a.Header["Strict-Transport-Security"]; !slices.Equal(got, []string{"ours"}) {
						t.Errorf("Strict-Transport-Security = %q, want ours", got)
					}
					delete(a.Header, "Strict-Transport-Security")
					for _, name := range withheld {
						if name = http.CanonicalHeaderKey(name); a.Header[name] != nil || a.Trailer[name] != nil {
							t.Errorf("%s: header = %q, trailer = %q, want none", name, a.Header[name], a.Trailer[name])
						}
					}
					if len(interim) > 0 {
						t.Errorf("interim responses = %q, want none", interim)
					}
				}
			})
		}
	}
}

func TestInterimResponsesAreNotForwarded(t *testing.T) {
	w := newTestEnv(t, Config{}, transport.Options{})
	w.backend(w.serve(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Link", "</style.css>; rel=preload")
		rw.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(rw, "ok")
	})))
	r := w.request(http.MethodGet, resource, nil)
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
			t.Errorf("interim response = %d, want none", code)
			return nil
		},
	}))
	if a := w.do(w.client(), r); a.StatusCode != 200 || a.body != "ok" {
		t.Errorf("response = %d %s, want 200 ok", a.StatusCode, a.body)
	}
}

// A backend that answers an expectation without reading the body must not leave the next request on a connection that
// still has it (CVE-2024-24791).
func TestA20UnreadExpectedBodyIsNotLeftOnConnection(t *testing.T) {
	for _, proto := range []string{"h2", "http/1.1"} {
		w := newTestEnv(t, Config{}, transport.Options{})
		w.backend(w.serveProtos(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				rw.WriteHeader(http.StatusForbidden)
				return
			}
			_, _ = io.WriteString(rw, "right")
		}), proto))
		c := w.client("http/1.1")
		// Without a timeout the client sends its body at once, and races with a server that has answered and closed.
		c.Transport.(*http.Transport).ExpectContinueTimeout = time.Minute
		for i := range 50 {
			r := w.request(http.MethodPost, resource, strings.NewReader(strings.Repeat("GET /x HTTP/1.1\r\n\r\n", 500)))
			r.Header.Set("Expect", "100-continue")
			if a := w.do(c, r); a.StatusCode != http.StatusForbidden {
				t.Fatalf("POST %d = %s, want 403", i, a.Status)
			}
			if a := w.do(c, w.request(http.MethodGet, resource, nil)); a.body != "right" {
				t.Fatalf("GET %d = %s %q, want %q", i, a.Status, a.body, "right")
			}
		}
	}
}

// A response that does not depend on the body must not wait for it: a client can send the body arbitrarily slowly.
func TestResponseDoesNotWaitForRequestBody(t *testing.T) {
	refuse := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusForbidden) })
	w := newTestEnv(t, Config{}, transport.Options{})
	for name, backend := range map[string]struct {
		address string
		status  int
	}{
		"refused":      {w.serve(refuse), http.StatusForbidden},
		"backend dead": {w.deadAddress(), http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			w.backend(backend.address)
			body, slow := io.Pipe()
			defer func() { _ = slow.Close() }()
			r := w.request(http.MethodPost, resource, body)
			r.ContentLength = 1 << 16
			if a := w.do(w.client(), r); a.StatusCode != backend.status {
				t.Errorf("status = %s, want %d", a.Status, backend.status)
			}
		})
	}
}

func TestHeadKeepsContentLength(t *testing.T) {
	w := newTestEnv(t, Config{}, transport.Options{})
	w.backend(w.serve(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.Header().Set("Content-Length", "5") })))
	a := w.do(w.client(), w.request(http.MethodHead, resource, nil))
	if a.StatusCode != 200 || a.ContentLength != 5 || a.err != nil {
		t.Errorf("response = %s, length %d, error %v, want 200 with length 5", a.Status, a.ContentLength, a.err)
	}
}

func TestLargeBodiesAreForwardedBothWays(t *testing.T) {
	w := newTestEnv(t, Config{}, transport.Options{})
	w.backend(w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { _, _ = io.Copy(rw, r.Body) })))
	big := strings.Repeat("0123456789abcdef", 300_000)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			a := w.do(w.client(), w.request(http.MethodPost, resource, strings.NewReader(big)))
			if a.body != big || a.err != nil {
				t.Errorf("body has %d of %d bytes, error %v, want all", len(a.body), len(big), a.err)
			}
		})
	}
	wg.Wait()
}

// A client that stops reading over HTTP/2 keeps its connection alive, and would otherwise hold its slot at the backend without
// end.
func TestD5StalledClientReleasesBackendSlot(t *testing.T) {
	for _, proto := range []string{"h2", "http/1.1"} {
		t.Run(proto, func(t *testing.T) {
			w := newTestEnv(t, Config{BodyIdle: 200 * time.Millisecond}, transport.Options{})
			gone := make(chan struct{})
			var once sync.Once
			b := w.backend(w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				chunk := make([]byte, 64<<10)
				for r.Context().Err() == nil {
					if _, err := rw.Write(chunk); err != nil {
						break
					}
				}
				once.Do(func() { close(gone) })
			})))
			c := w.client()
			if proto != "h2" {
				c = w.client(proto)
			}
			resp, err := c.Do(w.request(http.MethodGet, resource, nil))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			select {
			case <-gone:
			case <-time.After(40 * time.Second):
				t.Fatal("the backend still writes after 40s, want its request cancelled")
			}
			eventually(t, time.Minute, "the place is free", func() bool { return b.Report().InFlight == 0 })
		})
	}
}

// A client that sends an invalid body receives a 400 over either protocol of the backend, and the endpoint is not blamed.
func TestInvalidRequestBodyReturns400(t *testing.T) {
	for _, proto := range []string{"h2", "http/1.1"} {
		w := newTestEnv(t, Config{}, transport.Options{})
		b := w.backend(w.serveProtos(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }), proto))
		c, in := w.dial()
		_, _ = io.WriteString(c, "POST "+resource+" HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n0x5\r\n")
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body) // the received part is checked
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), `"reason":"BadRequest"`) {
			t.Errorf("%s: response = %s %s, want 400 BadRequest", proto, resp.Status, body)
		}
		if state := b.Report().Endpoints[0]; state.State != "well" || state.LastFailure != "" {
			t.Errorf("%s: endpoint = %+v, want state well without a failure", proto, state)
		}
		if n := w.logs.FilterLevelExact(zapcore.WarnLevel).Len(); n != 0 {
			t.Errorf("%s: %d warnings, want 0", proto, n)
		}
	}
}
