package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"portico.dev/internal/pki"
)

func TestRequestReachesBackendUnchanged(t *testing.T) {
	w := newTestEnv(t)
	var host, client, proto string
	s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		host, client, proto = r.Host, r.TLS.PeerCertificates[0].Subject.CommonName, r.Proto
	}))
	if _, err := get(t, w.backend(w.set(), s.address)); err != nil {
		t.Fatal(err)
	}
	if host != "ignored" && host != serviceName {
		t.Errorf("Host at the backend = %q, want ignored or %q", host, serviceName)
	}
	if client != "front-proxy-client" || proto != "HTTP/2.0" {
		t.Errorf("client certificate at the backend = %q over %s, want front-proxy-client over HTTP/2.0", client, proto)
	}
}

func TestColdStartDialsOnce(t *testing.T) {
	w := newTestEnv(t)
	s := w.serve(text("ok"))
	b := w.backend(w.set(), s.address)
	var wg sync.WaitGroup
	var failed atomic.Int64
	for range 60 {
		wg.Go(func() {
			if body, err := get(t, b); err != nil || body != "ok" {
				failed.Add(1)
			}
		})
	}
	wg.Wait()
	if failed.Load() != 0 || s.conns.Load() != 1 {
		t.Errorf("%d of 60 concurrent requests failed over %d connections, want 0 over 1", failed.Load(), s.conns.Load())
	}
}

func TestHTTP1IsUsedWithoutHTTP2Offer(t *testing.T) {
	w := newTestEnv(t)
	s := w.serve(text("plain"), "http/1.1")
	b := w.backend(w.set(), s.address)
	for range 5 {
		if body, err := get(t, b); err != nil || body != "plain" {
			t.Fatalf("GET = %q with the error %v, want plain", body, err)
		}
		if body, err := do(t, b, http.MethodPost, strings.NewReader("x")); err != nil || body != "plain" {
			t.Fatalf("POST = %q with the error %v, want plain", body, err)
		}
	}
	// net/http may still be returning a connection to the pool when the next request arrives.
	if n := s.conns.Load(); n > 3 {
		t.Errorf("%d connections for ten sequential requests, want at most 3", n)
	}
	if p := b.Report().Endpoints[0].Protocol; p != "http/1.1" {
		t.Errorf("protocol of the endpoint = %q, want http/1.1", p)
	}
}

func TestRestartedEndpointIsUpgradedToHTTP2(t *testing.T) {
	w := newTestEnv(t)
	s := w.serveOn(w.listenApart(), text("one"), "http/1.1")
	b := w.backend(w.set(), s.address)
	if _, err := get(t, b); err != nil {
		t.Fatal(err)
	}
	s.kill()
	l, err := net.Listen("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	w.serveOn(l, text("two"))
	eventually(t, time.Minute, "answered over HTTP/2", func() bool {
		body, err := get(t, b)
		return err == nil && body == "two" && b.Report().Endpoints[0].Protocol == "h2"
	})
}

func TestDeadEndpointIsSkipped(t *testing.T) {
	w := newTestEnv(t)
	s := w.serve(text("alive"))
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		b := w.backend(w.set(), w.deadAddress(), s.address, w.deadAddress())
		for i := range 20 {
			if body, err := do(t, b, method, strings.NewReader("body")); err != nil || body != "alive" {
				t.Fatalf("%s number %d = %q with the error %v, want alive", method, i, body, err)
			}
		}
	}
}

// An endpoint that is slow to connect is skipped as long as there are other endpoints, and used otherwise.
func TestSlowEndpointIsUsedWithoutAlternative(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	config := pki.ServerConfig(w.serving())
	config.NextProtos = []string{"h2"}
	slow := w.tcp(func(c net.Conn) {
		<-time.After(connectPatience + 300*time.Millisecond)
		tc := tls.Server(c, config)
		f, ok := newFrames(tc)
		if !ok {
			return
		}
		_ = f.WriteSettings()
		f.each(func(stream uint32) bool { f.header(stream, true, ":status", "200"); return true })
	})
	dead := w.deadAddress()
	var wg sync.WaitGroup
	for range 8 { // the order of the endpoints is random
		b := w.backend(w.set(func(o *Options) { o.TLSTimeout = time.Minute }), slow, dead)
		wg.Go(func() {
			if _, err := do(t, b, http.MethodPost, strings.NewReader("x")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestRequestFailsUnsentWhenAllEndpointsAreDead(t *testing.T) {
	w := newTestEnv(t)
	soon(t, 500*time.Millisecond, func() time.Duration {
		var told atomic.Int64
		b := w.backend(w.set(func(o *Options) { o.OnFailure = func(*Backend, error) { told.Add(1) } }), w.deadAddress(), w.deadAddress())
		start := time.Now()
		_, err := do(t, b, http.MethodPost, strings.NewReader("x"))
		took := time.Since(start)
		var failed *Error
		if !errors.As(err, &failed) || failed.Op != OpDial || failed.Sent || failed.Attempts != 2 {
			t.Fatalf("POST to dead endpoints error = %#v, want a dial error after 2 attempts, not sent", err)
		}
		// A slower run may see a reported failure of a background connection to an ejected endpoint.
		if n := told.Load(); n < 2 || n > 2 && time.Since(start) < firstEjection {
			t.Errorf("%d reported failures, want 2", n)
		}
		if state := b.Report().Endpoints[0].State; state != "ejected" {
			t.Errorf("state of a dead endpoint = %s, want ejected", state)
		}
		return took
	})
}

func TestBackendWithoutEndpointsReturnsErrNoEndpoints(t *testing.T) {
	w := newTestEnv(t)
	_, err := get(t, w.backend(w.set()))
	var failed *Error
	if !errors.As(err, &failed) || failed.Op != OpPick || !errors.Is(err, ErrNoEndpoints) || failed.Sent {
		t.Fatalf("GET without endpoints error = %#v, want ErrNoEndpoints from the pick, not sent", err)
	}
}

func TestEndpointKilledUnderLoadFailsNoRequest(t *testing.T) {
	w := newTestEnv(t)
	// The responses have no body: a request whose response headers arrived is not repeated.
	empty := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusNoContent) })
	one, two := w.serve(empty), w.serve(empty)
	b := w.backend(w.set(), one.address, two.address)
	var failed, done atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := get(t, b); err != nil {
					failed.Add(1)
					t.Log(err)
				}
				done.Add(1)
			}
		})
	}
	eventually(t, time.Minute, "some load", func() bool { return done.Load() > 500 })
	one.kill()
	after := done.Load() + 1000
	eventually(t, time.Minute, "load after the kill", func() bool { return done.Load() > after })
	close(stop)
	wg.Wait()
	if failed.Load() != 0 {
		t.Errorf("%d of %d idempotent requests failed after the kill, want 0", failed.Load(), done.Load())
	}
}

func TestSilentConnectionIsDetectedAndSkipped(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	w := newTestEnv(t)
	one, two := w.serve(text("ok")), w.serve(text("ok"))
	black := w.link(one.address)
	b := w.backend(w.set(), black.address, two.address)
	for range 10 { // connections to both
		if _, err := get(t, b); err != nil {
			t.Fatal(err)
		}
	}
	black.cut.Store(true)
	start := time.Now()
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if _, err := get(t, b); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	// This takes two seconds on an idle machine. Only pings detect the failure, because the first hop accepts the data.
	if took := time.Since(start); took > time.Minute {
		t.Errorf("time until all requests succeeded = %s, want at most a minute", took)
	}
	// From now on the dead endpoint is known, and causes no delay.
	slow := 0
	for range 10 {
		start = time.Now()
		if _, err := get(t, b); err != nil {
			t.Fatal(err)
		}
		if time.Since(start) > 1500*time.Millisecond { // pings take two seconds to detect it
			slow++
		}
	}
	if slow > 3 { // without the ejection, half of them would be slow
		t.Errorf("%d of 10 later requests were slow, want at most 3", slow)
	}
}

func TestEjectedEndpointReturns(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	one, two := w.serveOn(w.listenApart(), text("one")), w.serve(text("two"))
	b := w.backend(w.set(), one.address, two.address)
	one.kill()
	eventually(t, time.Minute, "ejected", func() bool {
		if _, err := get(t, b); err != nil {
			t.Fatal(err)
		}
		return b.Report().Endpoints[0].State == "ejected"
	})
	l, err := net.Listen("tcp", one.address)
	if err != nil {
		t.Fatal(err)
	}
	w.serveOn(l, text("back"))
	eventually(t, time.Minute, "back in use", func() bool {
		body, err := get(t, b)
		if err != nil {
			t.Fatal(err)
		}
		return body == "back"
	})
}

// goAwayServer serves per requests on each connection and then sends GOAWAY with the exact last stream, as a server that
// drops the remaining requests does. It counts the served requests.
func goAwayServer(w *testEnv, per int, code http2.ErrCode, served *atomic.Int64) string {
	return w.raw("h2", func(c *tls.Conn) {
		f, ok := newFrames(c)
		if !ok {
			return
		}
		_ = f.WriteSettings()
		n, last := 0, uint32(0)
		f.each(func(stream uint32) bool {
			if n >= per && stream > last {
				return true // dropped, as announced
			}
			served.Add(1)
			f.header(stream, true, ":status", "200")
			last = max(last, stream)
			if n++; n == per {
				_ = f.WriteGoAway(last, code, nil)
			}
			return true
		})
	})
}

func TestGoAwayStormLosesNoWrite(t *testing.T) {
	for _, code := range []http2.ErrCode{http2.ErrCodeNo, http2.ErrCodeEnhanceYourCalm} {
		t.Run(code.String(), func(t *testing.T) {
			w := newTestEnv(t)
			var served, failed atomic.Int64
			address := goAwayServer(w, 10, code, &served)
			b := w.backend(w.set(), address)
			const requests = 600
			var wg sync.WaitGroup
			work := make(chan int)
			for range 16 {
				wg.Go(func() {
					for range work {
						if _, err := do(t, b, http.MethodPost, strings.NewReader(strings.Repeat("x", 2000))); err != nil {
							failed.Add(1)
							t.Log(err)
						}
					}
				})
			}
			for i := range requests {
				work <- i
			}
			close(work)
			wg.Wait()
			if failed.Load() != 0 || served.Load() != requests {
				t.Errorf("%d requests failed and %d of %d were served, want 0 failures and all served once", failed.Load(), served.Load(), requests)
			}
		})
	}
}

func TestRefusedStreamsAreRepeated(t *testing.T) {
	w := newTestEnv(t)
	var seen atomic.Int64
	address := w.raw("h2", func(c *tls.Conn) {
		f, ok := newFrames(c)
		if !ok {
			return
		}
		_ = f.WriteSettings()
		f.each(func(stream uint32) bool {
			if seen.Add(1)%3 != 0 {
				_ = f.WriteRSTStream(stream, http2.ErrCodeRefusedStream)
			} else {
				f.header(stream, true, ":status", "200")
			}
			return true
		})
	})
	b := w.backend(w.set(), address)
	for range 10 {
		if _, err := do(t, b, http.MethodPost, strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestResetBeforeHeadersIsRetriedForReads(t *testing.T) {
	tests := []struct {
		name, method, body string
		code               http2.ErrCode
		attempts           int64
	}{
		{"a GET is repeated twice", http.MethodGet, "", http2.ErrCodeInternal, 3},
		{"a write is not", http.MethodPost, "x", http2.ErrCodeInternal, 1},
		{"a DELETE is not", http.MethodDelete, "", http2.ErrCodeInternal, 1},
		{"a GET that the backend calls malformed is not", http.MethodGet, "", http2.ErrCodeProtocol, 1},
		{"nor is such a HEAD", http.MethodHead, "", http2.ErrCodeProtocol, 1},
		{"nor is such a write", http.MethodPost, "x", http2.ErrCodeProtocol, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newTestEnv(t)
			var seen atomic.Int64
			address := w.raw("h2", func(c *tls.Conn) {
				f, ok := newFrames(c)
				if !ok {
					return
				}
				_ = f.WriteSettings()
				f.each(func(stream uint32) bool {
					seen.Add(1)
					_ = f.WriteRSTStream(stream, test.code)
					return true
				})
			})
			var body io.Reader
			if test.body != "" {
				body = strings.NewReader(test.body)
			}
			_, err := do(t, w.backend(w.set(), address), test.method, body)
			var failed *Error
			if !errors.As(err, &failed) || !failed.Sent || failed.Op != OpRoundTrip || failed.Protocol {
				t.Errorf("%s after resets error = %#v, want a round trip error, sent, not a protocol error", test.method, err)
			}
			if seen.Load() != test.attempts {
				t.Errorf("%d attempts of %s, want %d", seen.Load(), test.method, test.attempts)
			}
		})
	}
}

func TestRetriesStopWhenBudgetIsSpent(t *testing.T) {
	w := newTestEnv(t)
	var seen atomic.Int64
	address := w.raw("h2", func(c *tls.Conn) {
		f, ok := newFrames(c)
		if !ok {
			return
		}
		_ = f.WriteSettings()
		f.each(func(stream uint32) bool {
			seen.Add(1)
			_ = f.WriteRSTStream(stream, http2.ErrCodeInternal)
			return true
		})
	})
	b := w.backend(w.set(func(o *Options) { o.MaxInFlight = 5 }), address)
	for range 100 {
		if _, err := get(t, b); err == nil {
			t.Fatal("GET from a backend that resets every stream succeeded, want an error")
		}
	}
	// 100 requests earn 20 retries, and the burst is 5.
	if n := seen.Load(); n < 100 || n > 126 {
		t.Errorf("%d attempts for 100 requests, want 100 to 126", n)
	}
}

func TestA24WrongBackendCertificateIsRejected(t *testing.T) {
	w := newTestEnv(t)
	other := newTestEnv(t)
	tests := []struct {
		name string
		leaf pki.Leaf
		from *testEnv
	}{
		{"certificate for another name", pki.Leaf{DNSNames: []string{"other.kube-system.svc"}, Server: true}, w},
		{"certificate of another authority", pki.Leaf{DNSNames: []string{serviceName}, Server: true}, other},
		{"a client's certificate", pki.Leaf{CommonName: serviceName, DNSNames: []string{serviceName}, Client: true}, w},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pair := test.from.pair(test.leaf)
			address := w.tcp(func(c net.Conn) { _ = tls.Server(c, pki.ServerConfig(pair)).Handshake() })
			_, err := do(t, w.backend(w.set(), address), http.MethodPost, strings.NewReader("secret"))
			var failed *Error
			var verification *tls.CertificateVerificationError
			if !errors.As(err, &failed) || failed.Op != OpTLS || failed.Sent || !errors.As(err, &verification) {
				t.Errorf("POST to a backend with the wrong certificate error = %#v, want a TLS verification error, not sent", err)
			}
		})
	}
	t.Run("insecureSkipTLSVerify", func(t *testing.T) {
		s := other.serve(text("anyone"))
		spec := w.spec(s.address)
		spec.CABundle, spec.Insecure = nil, true
		b, err := w.set().Backend(spec)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := get(t, b); err != nil || body != "anyone" {
			t.Errorf("GET with insecureSkipTLSVerify = %q with the error %v, want anyone", body, err)
		}
	})
}

func TestMissingResponseHeadersTimeOut(t *testing.T) {
	w := newTestEnv(t)
	hold := make(chan struct{})
	s := w.serve(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hold }))
	defer close(hold)
	b := w.backend(w.set(func(o *Options) { o.HeaderTimeout = 50 * time.Millisecond }), s.address)
	_, err := get(t, b)
	var failed *Error
	if !errors.Is(err, ErrHeaderTimeout) || !errors.As(err, &failed) || !failed.Sent || failed.Attempts != 1 {
		t.Errorf("GET without response headers error = %#v, want ErrHeaderTimeout after 1 attempt, sent", err)
	}
}

func TestCanceledRequestIsCanceledAtBackend(t *testing.T) {
	w := newTestEnv(t)
	arrived, left := make(chan struct{}), make(chan struct{})
	s := w.serve(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
		close(left)
	}))
	b := w.backend(w.set(), s.address)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://x/", nil)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _, err = b.RoundTrip(r) })
	<-arrived
	cancel()
	wg.Wait()
	<-left
	if !errors.Is(err, context.Canceled) {
		t.Errorf("RoundTrip after the cancellation error = %v, want context.Canceled", err)
	}
	if state := b.Report().Endpoints[0]; state.State != "well" || state.InFlight != 0 {
		t.Errorf("endpoint after the cancellation = %+v, want the state well without requests in flight", state)
	}
}

func TestStreamsBeyondConnectionLimitOpenConnections(t *testing.T) {
	w := newTestEnv(t)
	hold := make(chan struct{})
	var inside atomic.Int64
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := w.serveOn(l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside.Add(1); <-hold }))
	s.http.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 10}
	b := w.backend(w.set(), s.address)
	var wg sync.WaitGroup
	var failed atomic.Int64
	for range 35 {
		wg.Go(func() {
			if _, err := get(t, b); err != nil {
				failed.Add(1)
				t.Log(err)
			}
		})
	}
	eventually(t, time.Minute, "all inside", func() bool { return inside.Load() == 35 })
	close(hold)
	wg.Wait()
	if failed.Load() > 0 {
		t.Errorf("%d of 35 concurrent requests failed, want 0", failed.Load())
	}
}

// brokenOff is a request body that breaks off, or is malformed.
type brokenOff struct{ io.Reader }

var errBroken = errors.New("malformed chunk")

func (b *brokenOff) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		err = errBroken
	}
	return n, err
}

// A client whose body breaks off does not affect the backend: the endpoint is not ejected, the request is not repeated, and no failure
// is counted.
func TestBrokenRequestBodyIsNotBackendFailure(t *testing.T) {
	for _, proto := range []string{"h2", "http/1.1"} {
		for name, length := range map[string]int64{"of unknown length": -1, "short": 1000, "long": 1 << 20} {
			t.Run(proto+" "+name, func(t *testing.T) {
				w := newTestEnv(t)
				s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
				}), proto)
				b := w.backend(w.set(), s.address)
				for range 5 {
					r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://ignored/apis/metrics.k8s.io/v1/nodes",
						&brokenOff{strings.NewReader("some of it")})
					if err != nil {
						t.Fatal(err)
					}
					r.ContentLength = length
					_, err = b.RoundTrip(r)
					var failed *Error
					if !errors.Is(err, ErrRequestBody) || !errors.Is(err, errBroken) || !errors.As(err, &failed) || failed.Op != OpRoundTrip || failed.Attempts > 1 {
						t.Fatalf("POST with a body that breaks off error = %#v, want ErrRequestBody of the round trip after at most 1 attempt", err)
					}
				}
				if e := b.Report().Endpoints[0]; e.State != "well" || e.LastFailure != "" {
					t.Errorf("endpoint after bodies that broke off = %+v, want the state well without a failure", e)
				}
			})
		}
	}
}
