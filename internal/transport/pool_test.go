package transport

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"portico.dev/internal/metrics"
	"portico.dev/internal/pki"
)

func TestRenewedClientCertificateIsUsed(t *testing.T) {
	for _, proto := range []string{"h2", "http/1.1"} {
		t.Run(proto, func(t *testing.T) {
			w := newTestEnv(t)
			hold, held := make(chan struct{}), make(chan struct{})
			var once sync.Once
			s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/hold" {
					_, _ = io.WriteString(rw, "first ")
					rw.(http.Flusher).Flush()
					once.Do(func() { close(held) })
					<-hold
				}
				_, _ = io.WriteString(rw, r.TLS.PeerCertificates[0].Subject.CommonName)
			}), protosOf(proto)...)
			b := w.backend(w.set(), s.address)
			if body, err := get(t, b); err != nil || body != "front-proxy-client" {
				t.Fatalf("GET = %q with the error %v, want front-proxy-client", body, err)
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://x/hold", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := b.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			<-held
			cert, key, err := w.ca.Issue(pki.Leaf{CommonName: "renewed", Client: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.front.Set(cert, key); err != nil {
				t.Fatal(err)
			}
			if body, err := get(t, b); err != nil || body != "renewed" {
				t.Errorf("GET after the certificate change = %q with the error %v, want renewed", body, err)
			}
			// A request in flight completes, and its connection closes with it.
			close(hold)
			body, err := io.ReadAll(resp.Body)
			if err != nil || string(body) != "first front-proxy-client" {
				t.Errorf("response in flight during the certificate change = %q with the error %v, want \"first front-proxy-client\"", body, err)
			}
			_ = resp.Body.Close()
			eventually(t, time.Minute, "one connection left", func() bool { return s.openConns() == 1 })
		})
	}
}

func protosOf(proto string) []string {
	if proto == "h2" {
		return nil
	}
	return []string{proto}
}

func TestRemovedEndpointDrainsUntilGracePeriod(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	w := newTestEnv(t)
	stream := make(chan string)
	s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/watch" {
			return
		}
		for event := range stream {
			_, _ = io.WriteString(rw, event+"\n")
			rw.(http.Flusher).Flush()
		}
	}))
	two := w.serve(text("two"))
	set := w.set(func(o *Options) { o.LeaveGrace = 5 * time.Second })
	b := w.backend(set, s.address)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://x/watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	var resp *http.Response
	var wg sync.WaitGroup
	wg.Go(func() { resp, err = b.RoundTrip(r) })
	stream <- "one"
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(resp.Body)
	_, _ = lines.ReadString('\n')
	same := w.backend(set, two.address)
	if same != b {
		t.Fatal("Backend with other endpoints returned another backend, want the same")
	}
	if body, err := get(t, b); err != nil || body != "two" {
		t.Fatalf("GET after the endpoint changed = %q with the error %v, want two", body, err)
	}
	stream <- "two"
	if line, err := lines.ReadString('\n'); err != nil || line != "two\n" {
		t.Errorf("line of the stream to the old endpoint = %q with the error %v, want two", line, err)
	}
	// The grace period ends, and the stream with it.
	if _, err := lines.ReadString('\n'); err == nil {
		t.Error("the stream to the old endpoint continues after the grace period, want an error")
	}
	_ = resp.Body.Close()
	close(stream)
	eventually(t, time.Minute, "no connection to what left", func() bool { return s.openConns() == 0 })
}

func TestChangedCACreatesNewBackend(t *testing.T) {
	w, other := newTestEnv(t), newTestEnv(t)
	s := w.serve(text("ok"))
	registry := prometheus.NewRegistry()
	set := w.set(func(o *Options) { o.Metrics = metrics.NewBackends(registry) })
	b := w.backend(set, s.address)
	if _, err := get(t, b); err != nil {
		t.Fatal(err)
	}
	if w.backend(set, s.address) != b {
		t.Fatal("Backend with the same specification returned another backend, want the same")
	}
	spec := w.spec(s.address)
	spec.CABundle = other.ca.PEM()
	wrong, err := set.Backend(spec)
	if err != nil {
		t.Fatal(err)
	}
	if wrong == b {
		t.Fatal("Backend with another CA returned the same backend, want another")
	}
	if _, err := get(t, wrong); err == nil {
		t.Error("GET with the wrong CA succeeded over an existing connection, want an error")
	}
	set.Retain(map[*Backend]bool{wrong: true})
	eventually(t, time.Minute, "connections of the old identity closed", func() bool { return s.openConns() == 0 })
	if _, err := get(t, b); !errors.Is(err, ErrNoEndpoints) {
		t.Errorf("GET from the removed backend error = %v, want ErrNoEndpoints", err)
	}
	if n := testutil.CollectAndCount(registry, "portico_backend_answers_total"); n != 5 {
		t.Errorf("%d series while a backend has the name, want 5", n)
	}
	set.Retain(nil)
	if n, err := testutil.GatherAndCount(registry); err != nil || n != 0 {
		t.Errorf("%d series after the last backend was removed, with the error %v, want 0", n, err)
	}

	spec.CABundle = []byte("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
	if _, err := set.Backend(spec); err == nil {
		t.Error("Backend with a malformed CA bundle succeeded, want an error")
	}
}

func TestClosedSetEndsRequests(t *testing.T) {
	w := newTestEnv(t)
	hold := make(chan struct{})
	s := w.serve(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hold }))
	defer close(hold)
	set := w.set()
	b := w.backend(set, s.address)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if _, err := get(t, b); err == nil {
				t.Error("GET on a closed set succeeded, want an error")
			}
		})
	}
	eventually(t, time.Minute, "requests inside", func() bool { return b.Report().Endpoints[0].InFlight == 3 })
	set.Close()
	wg.Wait()
	if _, err := set.Backend(w.spec(s.address)); !errors.Is(err, ErrClosed) {
		t.Errorf("Backend on a closed set error = %v, want ErrClosed", err)
	}
}

func TestAdmit(t *testing.T) {
	w := newTestEnv(t)
	spec := w.spec()
	spec.MaxInFlight = 2
	set := w.set()
	b, err := set.Backend(spec)
	if err != nil {
		t.Fatal(err)
	}
	var first, second, third Slot
	if err := errors.Join(b.Admit(&first, "a"), b.Admit(&second, "b")); err != nil {
		t.Fatal(err)
	}
	var limit *LimitError
	if err := b.Admit(&third, "c"); !errors.As(err, &limit) || limit.Limit != 2 || limit.Share {
		t.Fatalf("Admit of a third request error = %v, want a LimitError with the limit 2", err)
	}
	first.Release()
	first.Release()
	if err := b.Admit(&third, "b"); !errors.As(err, &limit) || !limit.Share {
		t.Errorf("Admit of a second request of one user error = %v, want a LimitError of the share", err)
	}
	if err := b.Admit(&third, "c"); err != nil {
		t.Errorf("Admit after a Release failed: %v, want no error", err)
	}
	spec.MaxInFlight = 0
	if _, err := set.Backend(spec); err != nil {
		t.Fatal(err)
	}
	if err := b.Admit(&first, "d"); err != nil {
		t.Errorf("Admit with the default limit failed: %v, want no error", err)
	}
}

func TestProbesUseSeparateConnection(t *testing.T) {
	w := newTestEnv(t)
	s := w.serve(text("ok"))
	b := w.backend(w.set(), s.address)
	for range 3 {
		for _, pool := range []http.RoundTripper{b, b.Probe()} {
			if _, err := get(t, pool); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := s.conns.Load(); n != 2 {
		t.Errorf("%d connections, want one for requests and one for probes", n)
	}
}

// A running probe completes on its connection, later probes use another, and requests keep theirs.
func TestLaterProbesUseNewConnection(t *testing.T) {
	w := newTestEnv(t)
	begun, end := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(end) })
	t.Cleanup(release)
	s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_ = http.NewResponseController(rw).Flush()
			close(begun)
			<-end
		}
		_, _ = io.WriteString(rw, "ok")
	}))
	b := w.backend(w.set(), s.address)
	b.RenewProbes() // no connection yet
	for _, pool := range []http.RoundTripper{b, b.Probe()} {
		if _, err := get(t, pool); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.conns.Load(); n != 2 {
		t.Fatalf("%d connections, want one for requests and one for probes", n)
	}
	b.RenewProbes()
	eventually(t, time.Minute, "a new connection", func() bool { return s.conns.Load() == 3 })
	slow := make(chan error, 1)
	go func() {
		text, err := do(t, b.Probe(), http.MethodPost, nil)
		if err == nil && text != "ok" {
			err = fmt.Errorf("the slow probe got %q", text)
		}
		slow <- err
	}()
	<-begun
	b.RenewProbes()
	eventually(t, time.Minute, "another new connection", func() bool { return s.conns.Load() == 4 })
	for _, pool := range []http.RoundTripper{b, b.Probe()} {
		if text, err := get(t, pool); err != nil || text != "ok" {
			t.Fatalf("GET during a slow probe = %q with the error %v, want ok", text, err)
		}
	}
	release()
	if err := <-slow; err != nil {
		t.Error(err)
	}
	if n := s.conns.Load(); n != 4 {
		t.Errorf("%d connections after all probes, want 4", n)
	}
}

func TestDialUpgradeOffersOnlyHTTP1(t *testing.T) {
	w := newTestEnv(t)
	offered := make(chan []string, 2)
	pair := w.serving()
	address := w.tcp(func(c net.Conn) {
		config := pki.ServerConfig(pair)
		config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			offered <- hello.SupportedProtos
			return nil, nil
		}
		tc := tls.Server(c, config)
		_, _ = io.Copy(tc, tc)
	})
	b := w.backend(w.set(), w.deadAddress(), address)
	conn, err := b.DialUpgrade(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if protos := <-offered; len(protos) != 1 || protos[0] != "http/1.1" {
		t.Errorf("offered protocols = %v, want [http/1.1]", protos)
	}
	if _, err := io.WriteString(conn, "ping"); err != nil {
		t.Fatal(err)
	}
	b4 := make([]byte, 4)
	if _, err := io.ReadFull(conn, b4); err != nil || string(b4) != "ping" {
		t.Errorf("echo over the upgraded connection = %q with the error %v, want ping", string(b4), err)
	}
	inFlight := func() (n int64) {
		for _, e := range b.Report().Endpoints {
			n += e.InFlight
		}
		return n
	}
	if inFlight() != 1 {
		t.Errorf("%d requests in flight with an open upgrade, want 1", inFlight())
	}
	_ = conn.Close()
	_ = conn.Close()
	if inFlight() != 0 {
		t.Errorf("%d requests in flight after two Close calls, want 0", inFlight())
	}
	dead := w.backend(w.set(), w.deadAddress())
	var failed *Error
	if _, err := dead.DialUpgrade(t.Context()); !errors.As(err, &failed) || failed.Op != OpDial {
		t.Errorf("DialUpgrade to a dead endpoint error = %#v, want a dial error", err)
	}
}

// A retry that cannot connect does not change that the first attempt was sent.
func TestFailedRetryStaysMarkedAsSent(t *testing.T) {
	w := newTestEnv(t)
	var address string
	done := make(chan struct{})
	l := w.listenApart()
	address = l.Addr().String()
	pair := w.serving()
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		_ = l.Close() // further connections are refused
		tc := tls.Server(c, pki.ServerConfig(pair))
		if f, ok := newFrames(tc); ok {
			_ = f.WriteSettings()
			f.each(func(uint32) bool { return false })
		}
		_ = c.Close()
	}()
	_, err := get(t, w.backend(w.set(), address))
	<-done
	var failed *Error
	if !errors.As(err, &failed) || failed.Op != OpDial || !failed.Sent || failed.Attempts != 2 {
		t.Errorf("GET error = %#v, want a dial error after 2 attempts, sent", err)
	}
}

func TestConnectionLostDuringBodyIsReported(t *testing.T) {
	for _, proto := range []string{"h2", "http/1.1"} {
		t.Run(proto, func(t *testing.T) {
			w := newTestEnv(t)
			s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				rw.(http.Flusher).Flush()
				<-r.Context().Done()
			}), protosOf(proto)...)
			told := make(chan error, 8)
			b := w.backend(w.set(func(o *Options) { o.OnFailure = func(_ *Backend, err error) { told <- err } }), s.address)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://x/watch", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := b.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			s.kill()
			if _, err := io.ReadAll(resp.Body); err == nil {
				t.Error("body of a killed connection ended without an error, want an error")
			}
			_ = resp.Body.Close()
			select {
			case <-told:
			case <-time.After(30 * time.Second):
				t.Error("no failure was reported within 30 seconds, want one")
			}
			if state := b.Report().Endpoints[0].State; state != "ejected" {
				t.Errorf("state of the endpoint = %s, want ejected", state)
			}
		})
	}
}

func TestCloseEndsHTTP1Requests(t *testing.T) {
	w := newTestEnv(t)
	s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.(http.Flusher).Flush()
		<-r.Context().Done()
	}), "http/1.1")
	set := w.set()
	b := w.backend(set, s.address)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://x/watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := b.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	set.Close()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("body ended without an error after Close, want an error")
	}
	eventually(t, time.Minute, "no connection left", func() bool { return s.openConns() == 0 })
}
