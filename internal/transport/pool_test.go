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

func TestClientCertificateIsReplaced(t *testing.T) {
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
				t.Fatal(body, err)
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
				t.Errorf("after the change: %q, %v", body, err)
			}
			// What was in flight ends in peace, and its connection with it.
			close(hold)
			body, err := io.ReadAll(resp.Body)
			if err != nil || string(body) != "first front-proxy-client" {
				t.Errorf("in flight: %q, %v", body, err)
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

func TestEndpointLeaves(t *testing.T) {
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
		t.Fatal("another backend for another set of endpoints")
	}
	if body, err := get(t, b); err != nil || body != "two" {
		t.Fatal(body, err)
	}
	stream <- "two"
	if line, err := lines.ReadString('\n'); err != nil || line != "two\n" {
		t.Errorf("in flight: %q, %v", line, err)
	}
	// The grace ends, and with it the stream.
	if _, err := lines.ReadString('\n'); err == nil {
		t.Error("the stream outlived the grace")
	}
	_ = resp.Body.Close()
	close(stream)
	eventually(t, time.Minute, "no connection to what left", func() bool { return s.openConns() == 0 })
}

func TestAnotherCAIsAnotherBackend(t *testing.T) {
	w, other := newTestEnv(t), newTestEnv(t)
	s := w.serve(text("ok"))
	registry := prometheus.NewRegistry()
	set := w.set(func(o *Options) { o.Metrics = metrics.NewBackends(registry) })
	b := w.backend(set, s.address)
	if _, err := get(t, b); err != nil {
		t.Fatal(err)
	}
	if w.backend(set, s.address) != b {
		t.Fatal("the same identity is another backend")
	}
	spec := w.spec(s.address)
	spec.CABundle = other.ca.PEM()
	wrong, err := set.Backend(spec)
	if err != nil {
		t.Fatal(err)
	}
	if wrong == b {
		t.Fatal("another CA is the same backend")
	}
	if _, err := get(t, wrong); err == nil {
		t.Error("a connection made under one CA served a backend with another")
	}
	set.Retain(map[*Backend]bool{wrong: true})
	eventually(t, time.Minute, "connections of the old identity closed", func() bool { return s.openConns() == 0 })
	if _, err := get(t, b); !errors.Is(err, ErrNoEndpoints) {
		t.Errorf("the old one still serves: %v", err)
	}
	if n := testutil.CollectAndCount(registry, "portico_backend_answers_total"); n != 5 {
		t.Errorf("%d series while the name is in use", n)
	}
	set.Retain(nil)
	if n, err := testutil.GatherAndCount(registry); err != nil || n != 0 {
		t.Errorf("%d series left, %v", n, err)
	}

	spec.CABundle = []byte("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
	if _, err := set.Backend(spec); err == nil {
		t.Error("a CA bundle that does not parse was taken")
	}
}

func TestSetCloses(t *testing.T) {
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
				t.Error("answered")
			}
		})
	}
	eventually(t, time.Minute, "requests inside", func() bool { return b.Report().Endpoints[0].InFlight == 3 })
	set.Close()
	wg.Wait()
	if _, err := set.Backend(w.spec(s.address)); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed set makes backends: %v", err)
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
		t.Fatalf("%v", err)
	}
	first.Release()
	first.Release()
	if err := b.Admit(&third, "b"); !errors.As(err, &limit) || !limit.Share {
		t.Errorf("the second place for the user of the first: %v", err)
	}
	if err := b.Admit(&third, "c"); err != nil {
		t.Errorf("a place given back: %v", err)
	}
	spec.MaxInFlight = 0
	if _, err := set.Backend(spec); err != nil {
		t.Fatal(err)
	}
	if err := b.Admit(&first, "d"); err != nil {
		t.Errorf("the default limit: %v", err)
	}
}

func TestProbesHaveTheirOwnConnection(t *testing.T) {
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
		t.Errorf("%d connections", n)
	}
}

// A probe under way ends on the connection that it is on, later ones come over another, and requests keep theirs.
func TestProbesAreRenewed(t *testing.T) {
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
	b.RenewProbes() // there is nothing yet
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
			t.Fatalf("%q, %v", text, err)
		}
	}
	release()
	if err := <-slow; err != nil {
		t.Error(err)
	}
	if n := s.conns.Load(); n != 4 {
		t.Errorf("%d connections, want 4", n)
	}
}

func TestDialUpgrade(t *testing.T) {
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
		t.Errorf("offered %v", protos)
	}
	if _, err := io.WriteString(conn, "ping"); err != nil {
		t.Fatal(err)
	}
	b4 := make([]byte, 4)
	if _, err := io.ReadFull(conn, b4); err != nil || string(b4) != "ping" {
		t.Error(string(b4), err)
	}
	inFlight := func() (n int64) {
		for _, e := range b.Report().Endpoints {
			n += e.InFlight
		}
		return n
	}
	if inFlight() != 1 {
		t.Errorf("%d in flight", inFlight())
	}
	_ = conn.Close()
	_ = conn.Close()
	if inFlight() != 0 {
		t.Errorf("%d in flight after closing twice", inFlight())
	}
	dead := w.backend(w.set(), w.deadAddress())
	var failed *Error
	if _, err := dead.DialUpgrade(t.Context()); !errors.As(err, &failed) || failed.Op != OpDial {
		t.Errorf("%#v", err)
	}
}

// A repetition that finds nobody does not make the first attempt undone.
func TestRetryKeepsSentState(t *testing.T) {
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
		_ = l.Close() // nobody else is answered
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
		t.Errorf("%#v", err)
	}
}

func TestConnectionLostUnderABodyIsTold(t *testing.T) {
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
				t.Error("the body looks complete")
			}
			_ = resp.Body.Close()
			select {
			case <-told:
			case <-time.After(30 * time.Second):
				t.Error("nobody was told")
			}
			if state := b.Report().Endpoints[0].State; state != "ejected" {
				t.Errorf("state %s", state)
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
		t.Error("the body looks complete")
	}
	eventually(t, time.Minute, "no connection left", func() bool { return s.openConns() == 0 })
}
