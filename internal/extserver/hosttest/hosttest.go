// Package hosttest runs a host on a TLS listener, for tests of hosted resources.
package hosttest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"portico.dev/internal/pki"
	"portico.dev/pkg/extension"
)

const (
	userHeader  = "X-Test-User"
	groupHeader = "X-Test-Group"
)

// byHeader authenticates callers by headers and allows everything, because these tests only test the decisions of providers.
type byHeader struct{}

func (byHeader) AuthenticateRequest(r *http.Request) (user.Info, error) {
	name := r.Header.Get(userHeader)
	if name == "" {
		return nil, errors.New("no credentials")
	}
	return &user.DefaultInfo{Name: name, Groups: r.Header.Values(groupHeader)}, nil
}

func (byHeader) Authorize(context.Context, user.Info, *apirequest.RequestInfo) (bool, string, error) {
	return true, "", nil
}

// Server is a running host.
type Server struct {
	*extension.Host
	t  testing.TB
	ca []byte
}

// Serve hosts resources until the test ends. change may be nil.
func Serve(t testing.TB, change func(*extension.Config), resources ...extension.Resource) *Server {
	t.Helper()
	authority, err := pki.NewAuthority("host CA")
	must(t, err)
	certPEM, keyPEM, err := authority.Issue(pki.Leaf{CommonName: "host", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true})
	must(t, err)
	pair, err := pki.StaticKeyPair(certPEM, keyPEM)
	must(t, err)
	c := extension.Config{Resources: resources, Authenticator: byHeader{}, Authorizer: byHeader{},
		BindAddress: "127.0.0.1", GetCertificate: pair.GetCertificate, ShutdownTimeout: 5 * time.Second}
	if change != nil {
		change(&c)
	}
	host, err := extension.New(c)
	must(t, err)
	Run(t, host.Run, host.Ready())
	return &Server{Host: host, t: t, ca: authority.PEM()}
}

// Run starts run, waits until it is ready, and stops it at the end of the test. ready may be nil.
func Run(t testing.TB, run func(context.Context) error, ready <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	if ready == nil {
		return
	}
	select {
	case <-ready:
	case err := <-done:
		done <- nil
		t.Fatalf("ended before it was ready: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("not ready in a minute")
	}
}

// As returns a client configuration for a user.
func (s *Server) As(name string, groups ...string) *rest.Config {
	return &rest.Config{
		Host: "https://" + s.Address(), TLSClientConfig: rest.TLSClientConfig{CAData: s.ca}, QPS: -1,
		WrapTransport: func(next http.RoundTripper) http.RoundTripper { return caller{next, name, groups} },
	}
}

type caller struct {
	next   http.RoundTripper
	name   string
	groups []string
}

func (c caller) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(userHeader, c.name)
	r.Header[groupHeader] = c.groups
	return c.next.RoundTrip(r)
}

// CloseIdleConnections closes idle connections of the wrapped transport, because a draining host waits for open connections.
func (c caller) CloseIdleConnections() { utilnet.CloseIdleConnectionsFor(c.next) }

// Answer is a response with its complete body.
type Answer struct {
	*http.Response
	Body string
}

// Get sends a GET request as a user. headers alternate between names and values.
func (s *Server) Get(name, path string, headers ...string) Answer {
	s.t.Helper()
	return s.Do(name, http.MethodGet, path, nil, headers...)
}

// Do sends a request as a user.
func (s *Server) Do(name, method, path string, body io.Reader, headers ...string) Answer {
	s.t.Helper()
	client, err := rest.HTTPClientFor(s.As(name))
	must(s.t, err)
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "https://"+s.Address()+path, body)
	must(s.t, err)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := client.Do(r)
	must(s.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(s.t, err)
	return Answer{response, string(text)}
}

// Eventually polls ok until it returns true. It fails the test after one minute.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("never: %s", what)
		case <-tick.C:
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
