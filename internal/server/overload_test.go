package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"golang.org/x/net/http2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/metrics"
	"portico.dev/internal/overload"
	"portico.dev/internal/respond"
)

// memoryEnv is a process whose memory usage the test sets.
type memoryEnv struct {
	monitor *overload.Monitor
	metrics *metrics.Overload
	used    func(percent uint64)
}

func newMemoryEnv(t *testing.T) *memoryEnv {
	t.Helper()
	s := &memoryEnv{metrics: metrics.NewOverload(prometheus.NewRegistry())}
	s.monitor = overload.New(overload.Config{Limit: overload.Limit{Bytes: 1000}, Metrics: s.metrics, Logger: zap.NewNop()})
	var mu sync.Mutex
	var percent uint64
	s.monitor.ReadWith(func() overload.Reading {
		mu.Lock()
		defer mu.Unlock()
		return overload.Reading{InUse: 10 * percent, Allocated: 10 * percent}
	})
	s.used = func(p uint64) {
		mu.Lock()
		percent = p
		mu.Unlock()
	}
	return s
}

// run starts the monitor. at makes it reach a level.
func (s *memoryEnv) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.monitor.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

var usedAt = [...]uint64{overload.Normal: 10, overload.Shedding: 80, overload.Critical: 90, overload.Exhausted: 100}

func (s *memoryEnv) at(t *testing.T, level overload.Level) {
	t.Helper()
	s.used(usedAt[level])
	soon(t, level.String(), func() bool { return s.monitor.Level() == level })
}

func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("no %s within 20 seconds, want it", what)
		case <-tick.C:
		}
	}
}

func (s *memoryEnv) chain(b *bench) {
	b.config.Overload, b.config.OverloadMetrics = s.monitor, s.metrics
}

var callers = map[string][]string{ // user and groups
	"alice":                          {"system:authenticated"},
	"system:node:n1":                 {"system:nodes"},
	"system:kube-controller-manager": nil,
	"system:serviceaccount:kube-system:job-controller": {"system:serviceaccounts:kube-system"},
	"admin": {"system:masters"},
}

func TestD18OverloadRejectsByPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemoryEnv(t)
		allowed := []string{}
		for name := range callers {
			allowed = append(allowed, name+" *")
		}
		b := newBench(allowed...)
		s.chain(b)
		read := false
		b.handler = func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			read = err == nil
		}
		chain := b.chain(t)
		s.run(t)
		ask := func(user, method, path string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(method, path, strings.NewReader("{}"))
			r.Header.Set("Test-User", user)
			for _, g := range callers[user] {
				r.Header.Add("Test-Group", g)
			}
			w := httptest.NewRecorder()
			read = false
			chain.ServeHTTP(w, r)
			return w
		}
		const pods = "/api/v1/namespaces/n/pods"
		for _, c := range []struct {
			level   overload.Level
			refused []string
		}{
			{overload.Normal, nil},
			{overload.Shedding, []string{"alice"}},
			{overload.Critical, []string{"alice"}},
			{overload.Exhausted, []string{"alice", "system:node:n1", "system:kube-controller-manager", "system:serviceaccount:kube-system:job-controller"}},
		} {
			s.at(t, c.level)
			for user := range callers {
				w := ask(user, http.MethodPost, pods)
				refused := false
				for _, name := range c.refused {
					refused = refused || name == user
				}
				if !refused {
					if w.Code != http.StatusOK || !read {
						t.Errorf("%s: POST of %s = %d %s with the body read %t, want 200 and true", c.level, user, w.Code, w.Body, read)
					}
					continue
				}
				var status metav1.Status
				if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil {
					t.Fatal(err)
				}
				after := w.Header().Get("Retry-After")
				if w.Code != http.StatusServiceUnavailable || read || status.Reason != metav1.StatusReasonServiceUnavailable ||
					after != "1" && after != "5" || !strings.Contains(status.Message, "short of memory") {
					t.Errorf("%s: POST of %s = %d %s with Retry-After %q and the body read %t, want 503 for lack of memory, 1 or 5, and false", c.level, user, w.Code, w.Body, after, read)
				}
			}
			for _, path := range []string{"/livez", "/readyz/etcd", "/healthz", "/metrics"} {
				if w := ask("alice", http.MethodGet, path); w.Code != http.StatusOK {
					t.Errorf("%s: GET %s = %d, want 200", c.level, path, w.Code)
				}
			}
			if w := ask("alice", http.MethodGet, "/livezz"); (w.Code == http.StatusOK) != (c.level == overload.Normal) {
				t.Errorf("%s: GET /livezz = %d, want 200 only at the normal level", c.level, w.Code)
			}
		}
		if n := testutil.ToFloat64(s.metrics.Shed.WithLabelValues("memory")); n != 9 {
			t.Errorf("counted rejections for lack of memory = %v, want 9", n)
		}
		s.at(t, overload.Normal)
		if w := ask("alice", http.MethodPost, pods); w.Code != http.StatusOK {
			t.Errorf("POST after the shortage = %d %s, want 200", w.Code, w.Body)
		}
	})
}

// A request with impersonation has the priority of the authenticated user.
func TestD18ImpersonatingAdministratorIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemoryEnv(t)
		b := newBench("admin *", "alice *")
		s.chain(b)
		chain := b.chain(t)
		s.run(t)
		s.at(t, overload.Shedding)
		r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
		r.Header.Set("Test-User", "admin")
		r.Header.Set("Test-Group", "system:masters")
		r.Header.Set("Impersonate-User", "alice")
		w := httptest.NewRecorder()
		chain.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Errorf("GET of an administrator who impersonates = %d %s, want 200", w.Code, w.Body)
		}
	})
}

// listenShort is a listening server with simulated memory, in a synctest bubble.
func listenShort(t *testing.T, handler http.HandlerFunc) (*memoryEnv, *listening) {
	s := newMemoryEnv(t)
	b := newBench("alice *", "admin *")
	b.memory = true
	s.chain(b)
	b.handler = handler
	l := b.listen(t, time.Second, func(srv *Server) { srv.c.Overload, srv.c.OverloadMetrics = s.monitor, s.metrics })
	s.run(t)
	return s, l
}

func (l *listening) post(ctx context.Context, c *http.Client, user string, body io.Reader) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+l.address+"/api/v1/namespaces/n/configmaps", body)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Test-User", user)
	if user == "admin" {
		r.Header.Set("Test-Group", "system:masters")
	}
	res, err := c.Do(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, err
}

// Idle connections are closed, over both protocols, except connections of privileged users.
func TestD18IdleConnectionsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := listenShort(t, func(http.ResponseWriter, *http.Request) {})
		for _, h2 := range []bool{true, false} {
			conns := map[string]*tls.Conn{}
			clients := map[string]*http.Client{}
			for _, user := range []string{"alice", "admin"} {
				c := l.client(t, h2)
				c.Transport.(*http.Transport).DialTLSContext = func(context.Context, string, string) (net.Conn, error) {
					if conns[user] != nil {
						t.Errorf("HTTP/2 %t: %s dialed a second connection, want one", h2, user)
					}
					conns[user] = l.secure(t, map[bool]string{true: "h2", false: "http/1.1"}[h2])
					return conns[user], nil
				}
				clients[user] = c
				if code, err := l.post(t.Context(), c, user, nil); code != http.StatusOK {
					t.Fatalf("HTTP/2 %t: first POST of %s = %d with the error %v, want 200", h2, user, code, err)
				}
			}
			before := testutil.ToFloat64(s.metrics.Closed.WithLabelValues("idle"))
			s.at(t, overload.Shedding)
			soon(t, "a closed connection", func() bool { return testutil.ToFloat64(s.metrics.Closed.WithLabelValues("idle")) == before+1 })
			if code, err := l.post(t.Context(), clients["admin"], "admin", nil); code != http.StatusOK {
				t.Errorf("HTTP/2 %t: POST of an administrator on the existing connection = %d with the error %v, want 200", h2, code, err)
			}
			s.at(t, overload.Normal)
		}
	})
}

// At the critical level, new streams on an ordinary user's connection are rejected before the handler, and HTTP/1.1 requests get
// a complete response. On a new connection a client may authenticate.
func TestD18CriticalLevelRejectsBeforeHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		enginetest.Needs(t, enginetest.ShortOfMemory)
		started := make(chan struct{}, 8)
		s, l := listenShort(t, func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/api" { // keeps the inspected connections busy
				started <- struct{}{}
				<-r.Context().Done()
			}
		})
		two := l.attack(t) // with raw frames, because net/http's client repeats refused requests
		if _, err := two.open("alice"); err != nil {
			t.Fatal(err)
		}
		<-started
		one := l.secure(t, "http/1.1")
		_ = one.SetDeadline(time.Now().Add(20 * time.Second))
		const request = "GET /version HTTP/1.1\r\nHost: a\r\nTest-User: alice\r\n\r\n"
		_, _ = io.WriteString(one, request)
		answers := bufio.NewReader(one)
		res, err := http.ReadResponse(answers, nil)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("GET before the critical level = %v with the error %v, want 200", res, err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_, _ = io.WriteString(one, request[:20]) // keeps the connection from being idle

		s.at(t, overload.Critical)
		id, err := two.open("alice")
		if err != nil {
			t.Fatal(err)
		}
		for {
			f, err := two.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if f.Header().StreamID != id {
				continue
			}
			if reset, ok := f.(*http2.RSTStreamFrame); !ok || reset.ErrCode != http2.ErrCodeRefusedStream {
				t.Errorf("frame for a new stream at the critical level = %v, want RST_STREAM with REFUSED_STREAM", f)
			}
			break
		}
		_, _ = io.WriteString(one, request[20:])
		res, err = http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		var status metav1.Status
		if err := json.Unmarshal(text, &status); err != nil || res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") != "1" ||
			status.Reason != metav1.StatusReasonServiceUnavailable || status.Details == nil || status.Details.RetryAfterSeconds != 1 {
			t.Errorf("HTTP/1.1 request at the critical level = %s with the header %q and the body %s (decoding error %v), want 503 with Retry-After 1", res.Status, res.Header, text, err)
		}
		if n := testutil.ToFloat64(s.metrics.Shed.WithLabelValues("refused")); n != 2 {
			t.Errorf("counted refusals = %v, want 2", n)
		}
		for _, h2 := range []bool{true, false} {
			if code, err := l.post(t.Context(), l.client(t, h2), "alice", nil); code != http.StatusServiceUnavailable {
				t.Errorf("HTTP/2 %t: POST of alice on a new connection = %d with the error %v, want 503", h2, code, err)
			}
			if code, err := l.post(t.Context(), l.client(t, h2), "admin", nil); code != http.StatusOK {
				t.Errorf("HTTP/2 %t: POST of an administrator on a new connection = %d with the error %v, want 200", h2, code, err)
			}
		}
	})
}

// The connection with the most memory is closed, and its handler's context ends. The other connections stay.
func TestD18ConnectionWithMostMemoryIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		enginetest.Needs(t, enginetest.ShortOfMemory)
		for _, h2 := range []bool{true, false} {
			started, ended := make(chan string, 8), make(chan string, 8)
			s, l := listenShort(t, func(w http.ResponseWriter, r *http.Request) {
				user := r.Header.Get("Test-Size")
				if h := engineOf(w); h != nil && user == "large" {
					h.ChargeMemory(1 << 20)
				}
				w.(http.Flusher).Flush()
				started <- user
				<-r.Context().Done()
				ended <- user
			})
			for _, size := range []string{"small", "large"} {
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+l.address+"/api/v1/pods?watch=true", nil)
				r.Header.Set("Test-User", "alice")
				r.Header.Set("Test-Size", size)
				res, err := l.client(t, h2).Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				<-started
			}
			s.at(t, overload.Critical)
			select {
			case size := <-ended:
				if size != "large" {
					t.Errorf("HTTP/2 %t: the %s request ended first, want large", h2, size)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("HTTP/2 %t: no connection was closed within 20 seconds, want the large one", h2)
			}
			s.used(usedAt[overload.Normal]) // further connections would be closed after a second
			soon(t, "the count", func() bool { return testutil.ToFloat64(s.metrics.Closed.WithLabelValues("largest")) == 1 })
			s.at(t, overload.Normal)
			select {
			case size := <-ended:
				t.Errorf("HTTP/2 %t: the %s request ended too, want only the large one", h2, size)
			default:
			}
		}
	})
}

// A connection that a privileged user shares with other users, as behind a proxy, loses only the other users' streams.
func TestD18PrivilegedStreamsOfSharedConnectionSurvive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		enginetest.Needs(t, enginetest.ShortOfMemory)
		started, ended := make(chan string, 8), make(chan string, 8)
		s, l := listenShort(t, func(w http.ResponseWriter, r *http.Request) {
			user := r.Header.Get("Test-User")
			if h := engineOf(w); h != nil {
				h.ChargeMemory(1 << 20)
			}
			started <- user
			<-r.Context().Done()
			ended <- user
		})
		a := l.attack(t)
		admin, _ := a.open("admin", "test-group", "system:masters")
		<-started
		alice, _ := a.open("alice")
		<-started
		s.at(t, overload.Critical)
		for {
			f, err := a.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if g, ok := f.(*http2.GoAwayFrame); ok {
				t.Errorf("frame on the shared connection = %v, want no GOAWAY", g)
			}
			if f.Header().StreamID == admin {
				t.Errorf("frame on the administrator's stream = %v, want none", f)
			}
			if f.Header().StreamID == alice {
				if reset, ok := f.(*http2.RSTStreamFrame); !ok || reset.ErrCode != http2.ErrCodeEnhanceYourCalm {
					t.Errorf("frame on the other user's stream = %v, want RST_STREAM with ENHANCE_YOUR_CALM", f)
				}
				break
			}
		}
		if user := <-ended; user != "alice" {
			t.Errorf("handler of %s ended first, want alice", user)
		}
		soon(t, "the count", func() bool { return testutil.ToFloat64(s.metrics.Closed.WithLabelValues("largest")) == 1 })
		select {
		case user := <-ended:
			t.Errorf("handler of %s ended too, want only alice", user)
		default:
		}
	})
}

// The memory for buffered bodies is limited over all requests, and released after them.
func TestD19BufferedBodyMemoryIsLimited(t *testing.T) {
	b := newBench("alice *", "bob *", "admin *")
	s := newMemoryEnv(t)
	s.chain(b)
	bodies := NewBodyMemory(overload.Limit{Bytes: 1}, s.metrics) // the minimum
	const size = 3 << 20
	read, release := make(chan struct{}, 64), make(chan struct{})
	b.handler = ForLocal(bodies, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			respond.Error(w, r, err)
			return
		}
		read <- struct{}{}
		<-release
	})).ServeHTTP
	l := b.listen(t, 30*time.Second)
	for _, h2 := range []bool{true, false} {
		release = make(chan struct{})
		codes := make(chan int, 64)
		post := func(user string, n int) {
			code, err := l.post(t.Context(), l.client(t, h2), user, io.LimitReader(zeros{}, int64(n)))
			if err != nil {
				t.Error(err)
			}
			codes <- code
		}
		fits := 0
		for ; ; fits++ { // until alice reaches the limit
			go post("alice", size)
			select {
			case <-read:
				continue
			case code := <-codes:
				if code != http.StatusServiceUnavailable {
					t.Errorf("HTTP/2 %t: POST of one body too many = %d, want 503", h2, code)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("no response to alice within 20 seconds, want one")
			}
			break
		}
		if fits < 1 || fits > minBodyMemory/(bodyFactor*size) {
			t.Errorf("HTTP/2 %t: %d bodies fit at once, want 1 to %d", h2, fits, minBodyMemory/(bodyFactor*size))
		}
		if got, least := bodies.Charged(), int64(fits*bodyFactor*size); got < least {
			t.Errorf("HTTP/2 %t: %d bytes are charged for %d bodies, want at least %d", h2, got, fits, least)
		}
		for _, other := range []struct {
			user string
			n    int
		}{{"alice", uncountedBody}, {"admin", size}, {"bob", 512 << 10}} {
			go post(other.user, other.n)
			select {
			case <-read:
			case code := <-codes:
				t.Errorf("HTTP/2 %t: POST of %s with %d bytes = %d, want the body to be read", h2, other.user, other.n, code)
			case <-time.After(20 * time.Second):
				t.Fatalf("no response to %s within 20 seconds, want the body to be read", other.user)
			}
		}
		close(release)
		for range fits + 3 {
			if code := <-codes; code != http.StatusOK {
				t.Errorf("HTTP/2 %t: status of a held request after the release = %d, want 200", h2, code)
			}
		}
		soon(t, "the end of what is held", func() bool { return bodies.Charged() == 0 })
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// Abandoned handshakes make room for new ones. Clients that complete the handshake are served.
func TestD19PendingHandshakesAreLimited(t *testing.T) {
	b := newBench("alice *")
	m := metrics.NewOverload(prometheus.NewRegistry())
	l := b.listen(t, time.Second, func(s *Server) { s.c.OverloadMetrics, s.c.Memory = m, overload.Limit{Bytes: 1} })
	var mute []net.Conn
	defer func() {
		for _, c := range mute {
			_ = c.Close()
		}
	}()
	for range 3 * minHandshakes {
		c, err := net.Dial("tcp", l.address)
		if err != nil {
			t.Fatal(err)
		}
		mute = append(mute, c)
		_, _ = c.Write([]byte{22, 3, 1, 2, 0, 1, 0})
	}
	answered(t, l)
	soon(t, "the end of the oldest", func() bool {
		return testutil.ToFloat64(m.Closed.WithLabelValues("handshake")) >= 2*minHandshakes
	})
	ended := 0
	for _, c := range mute[:2*minHandshakes] {
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.Copy(io.Discard, c); !errors.Is(err, os.ErrDeadlineExceeded) {
			ended++
		}
	}
	if ended < 2*minHandshakes {
		t.Errorf("%d of the oldest %d handshakes ended, want all", ended, 2*minHandshakes)
	}
}

// A client from an address with few pending handshakes is not displaced by an address with many, even if its handshake is slow.
func TestD19AddressWithMostHandshakesIsDisplaced(t *testing.T) {
	b := newBench("alice *")
	m := metrics.NewOverload(prometheus.NewRegistry())
	l := b.listen(t, time.Second, func(s *Server) { s.c.OverloadMetrics, s.c.Memory = m, overload.Limit{Bytes: 1} })
	slow, err := net.Dial("tcp", l.address)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	hello := l.clientHello(t)
	elsewhere := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	for range 4 * minHandshakes {
		c, err := elsewhere.Dial("tcp", l.address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write(hello); err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
	}
	soon(t, "the end of the others", func() bool {
		return testutil.ToFloat64(m.Closed.WithLabelValues("handshake")) >= 3*minHandshakes
	})
	_ = slow.SetDeadline(time.Now().Add(10 * time.Second))
	if err := tls.Client(slow, &tls.Config{ServerName: "127.0.0.1", RootCAs: l.roots}).Handshake(); err != nil {
		t.Errorf("handshake from the other address failed: %v, want no error", err)
	}
}

func TestNetworkGroupsIPv6AddressesByPrefix(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::", "fe80::1%eth0": "fe80::",
	} {
		if got := network(net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 1))); got.String() != want {
			t.Errorf("network(%s) = %s, want %s", address, got, want)
		}
	}
}

// Clients that send only a ClientHello do not block other handshakes from the expensive part.
func TestD19IdleHandshakesDoNotBlockOtherHandshakes(t *testing.T) {
	b := newBench("alice *")
	l := b.listen(t, time.Second)
	hello := l.clientHello(t)
	for range 200 {
		c, err := net.Dial("tcp", l.address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write(hello); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	answered(t, l)
	if took := time.Since(start); took > 8*time.Second { // the handshake timeout is 10 seconds
		t.Errorf("time until another client was served = %s, want at most 8s", took)
	}
}

// clientHello returns the first bytes of a TLS client.
func (l *listening) clientHello(t *testing.T) []byte {
	t.Helper()
	var hello bytes.Buffer
	if err := tls.Client(recorder{&hello}, &tls.Config{ServerName: "127.0.0.1", RootCAs: l.roots}).Handshake(); err == nil {
		t.Fatal("handshake without a server succeeded, want an error")
	}
	return hello.Bytes()
}

// recorder keeps the written bytes, and never returns data.
type recorder struct{ to io.Writer }

func (r recorder) Write(p []byte) (int, error)      { return r.to.Write(p) }
func (recorder) Read([]byte) (int, error)           { return 0, io.EOF }
func (recorder) Close() error                       { return nil }
func (recorder) LocalAddr() net.Addr                { return nil }
func (recorder) RemoteAddr() net.Addr               { return nil }
func (recorder) SetDeadline(time.Time) error        { return nil }
func (recorder) SetReadDeadline(time.Time) error    { return nil }
func (recorder) SetWriteDeadline(t time.Time) error { return nil }
