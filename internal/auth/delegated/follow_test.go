package delegated

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// apiServer is an http.RoundTripper that responds to reads and watches of the ConfigMap without a network.
type apiServer struct {
	mu       sync.Mutex
	data     map[string]string
	version  int
	isAway   bool
	isSilent bool // watches deliver nothing
	code     int  // of every response, 0 for success
	watched  int  // the code of watches, 0 for success
	reads    int
	changed  chan struct{}
}

func newAPIServer(data map[string]string) *apiServer {
	return &apiServer{data: data, version: 1, changed: make(chan struct{})}
}

// set changes the server, and ends or wakes up its watches.
func (a *apiServer) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *apiServer) readCount() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reads
}

// RoundTrip implements http.RoundTripper.
func (a *apiServer) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.isAway {
		return nil, &testDialError{}
	}
	isWatch := r.URL.Path == configMaps
	code := a.code
	if isWatch && code == 0 {
		code = a.watched
	}
	if !isWatch {
		a.reads++
	}
	recorder := httptest.NewRecorder()
	switch {
	case code != 0:
		writeStatus(recorder, code)
	case isWatch:
		body, out := io.Pipe()
		seen, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
		go a.watch(r.Context(), out, seen)
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: body, Request: r}, nil
	default:
		writeJSON(recorder, a.configMap())
	}
	return &http.Response{StatusCode: recorder.Code, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(recorder.Body.Bytes())), Request: r}, nil
}

func (a *apiServer) configMap() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: configMapName, Namespace: configMapNamespace, ResourceVersion: strconv.Itoa(a.version)}, Data: a.data,
	}
}

func (a *apiServer) watch(ctx context.Context, out *io.PipeWriter, seen int) {
	end := func() { _ = out.CloseWithError(io.ErrUnexpectedEOF) }
	defer end()
	defer context.AfterFunc(ctx, end)() // unblocks Write
	for {
		a.mu.Lock()
		changed, isAway := a.changed, a.isAway
		var event []byte
		if a.version > seen && !a.isSilent {
			seen = a.version
			event, _ = json.Marshal(map[string]any{"type": "MODIFIED", "object": a.configMap()})
		}
		a.mu.Unlock()
		if isAway {
			return
		}
		if _, err := out.Write(event); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

type testDialError struct{}

func (*testDialError) Error() string { return "dial tcp: connect: connection refused" }
func (*testDialError) Unwrap() error { return syscall.ECONNREFUSED }

// follower is a Delegated that follows an apiServer in a synctest bubble.
type follower struct {
	*Delegated
	t *testing.T
}

func startFollower(t *testing.T, a *apiServer) follower {
	t.Helper()
	d, err := New(Config{Client: &rest.Config{Host: "http://front-door.invalid", Transport: a}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run() = %v, want nil", err)
		}
	})
	<-d.Ready()
	return follower{d, t}
}

// request sends a request of a front proxy, and reports whether its identity headers are accepted.
func (f follower) request(proxy *tls.Certificate) bool {
	f.t.Helper()
	leaf, err := x509.ParseCertificate(proxy.Certificate[0])
	if err != nil {
		f.t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Remote-User", "alice")
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
	u, err := f.AuthenticateRequest(r)
	return err == nil && u.GetName() == "alice"
}

// trusts reports whether the published front-proxy CA in effect is ca. It sends no request.
func (f follower) trusts(ca authorities) bool {
	return f.current.Load().data[proxyCAKey] == string(ca.proxies.PEM())
}

func TestNewCAIsLoadedSoonAfterOutage(t *testing.T) {
	for name, refused := range map[string]time.Duration{"answers at once": 0, "answers 403 at first": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before, after := newAuthorities(t), newAuthorities(t)
				a := newAPIServer(before.published())
				f := startFollower(t, a)
				a.set(func() { a.isAway = true })
				time.Sleep(10 * time.Minute)
				a.set(func() {
					a.isAway, a.data = false, after.published()
					a.version++
					if refused > 0 {
						a.code = http.StatusForbidden
					}
				})
				time.Sleep(refused)
				a.set(func() { a.code = 0 })
				began := time.Now()
				for !f.trusts(after) && time.Since(began) < time.Minute {
					time.Sleep(10 * time.Millisecond)
				}
				if got, want := time.Since(began), 3*time.Second; got > want {
					t.Errorf("time until the new CA was in effect = %s, want at most %s", got, want)
				}
			})
		})
	}
}

func TestUnknownSignerTriggersConfigMapRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := newAuthorities(t), newAuthorities(t)
		a := newAPIServer(before.published())
		a.isSilent = true
		f := startFollower(t, a)
		a.set(func() { a.data = after.published(); a.version++ })
		proxy := after.proxies.Client(t, "front-proxy-client")
		began := time.Now()
		for !f.request(proxy) && time.Since(began) < time.Minute {
			time.Sleep(10 * time.Millisecond)
		}
		if got, want := time.Since(began), 3*time.Second; got > want {
			t.Errorf("time until requests of the new front proxy were accepted = %s, want at most %s", got, want)
		}
	})
}

func TestReadsTriggeredByRequestsAreRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, unknown := newAuthorities(t), newAuthorities(t)
		a := newAPIServer(ca.published())
		f := startFollower(t, a)
		proxy := unknown.proxies.Client(t, "front-proxy-client")
		before := a.readCount()
		for range 1000 { // in ten seconds
			if f.request(proxy) {
				t.Fatal("front proxy of an unknown CA is accepted, want it rejected")
			}
			time.Sleep(10 * time.Millisecond)
		}
		if got := a.readCount() - before; got < 5 || got > 11 {
			t.Errorf("reads = %d, want 5 to 11", got)
		}
		before = a.readCount()
		for range 10 * 60 {
			if !f.request(ca.proxies.Client(t, "front-proxy-client")) {
				t.Fatal("front proxy of the published CA is rejected, want it accepted")
			}
			time.Sleep(100 * time.Millisecond)
		}
		if got := a.readCount() - before; got > 3 {
			t.Errorf("reads during a minute of accepted requests = %d, want at most 3", got)
		}
	})
}

func TestForbiddenWatchIsReplacedByPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(newAuthorities(t).published())
		a.watched = http.StatusForbidden
		startFollower(t, a)
		time.Sleep(time.Minute)
		before := a.readCount()
		time.Sleep(10 * time.Minute)
		if got := a.readCount() - before; got < 120 || got > 241 {
			t.Errorf("reads in ten minutes = %d, want 120 to 241", got)
		}
	})
}

func TestRetryPauseIsBounded(t *testing.T) {
	var p retryPause
	away := errors.New("connection refused")
	for n := range 20 {
		if got := p.next(0, away); got <= 0 || got > maxPauseAway {
			t.Errorf("pause %d = %s, want at most %s", n, got, maxPauseAway)
		}
	}
	if got := p.next(0, nil); got > firstPause {
		t.Errorf("first pause after the return = %s, want at most %s", got, firstPause)
	}
}
