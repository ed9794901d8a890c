package faults

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/auth/authn"
	"portico.dev/internal/dispatch"
	"portico.dev/internal/metrics"
	"portico.dev/internal/pki"
	"portico.dev/internal/proxy"
	"portico.dev/internal/routetable"
	"portico.dev/internal/run"
	"portico.dev/internal/server"
	"portico.dev/internal/transport"
)

// front is a front door without storage: the proxied path from its listener to its transport.
type front struct {
	t       testing.TB
	ca      *pki.Authority
	set     *transport.Set
	address string
	client  *http.Client

	mu     sync.Mutex // guards routes
	routes []*routetable.Route
	table  *routetable.Table
}

// everybody authorizes every request. The user was authenticated before.
type everybody struct{}

func (everybody) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

func newFront(t testing.TB) *front {
	t.Helper()
	ca, err := pki.NewAuthority("faults")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{t: t, ca: ca, table: routetable.NewTable(nil, true)}
	f.set = transport.New(transport.Options{
		Certificate: f.pair(pki.Leaf{CommonName: "front-proxy-client", Client: true}), AllowLoopback: true,
	})
	t.Cleanup(f.set.Close)
	f.listen()
	f.client = f.newClient()
	return f
}

func (f *front) pair(l pki.Leaf) *pki.KeyPair {
	f.t.Helper()
	cert, key, err := f.ca.Issue(l)
	if err != nil {
		f.t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(cert, key)
	if err != nil {
		f.t.Fatal(err)
	}
	return pair
}

func (f *front) listen() {
	f.t.Helper()
	clientCA, err := pki.StaticBundle(f.ca.PEM())
	if err != nil {
		f.t.Fatal(err)
	}
	who, err := authn.New(authn.Config{ClientCA: clientCA, Metrics: metrics.NewAuth(prometheus.NewRegistry()), Logger: zap.NewNop()})
	if err != nil {
		f.t.Fatal(err)
	}
	carrier, drainer := proxy.New(proxy.Config{}), server.NewDrainer()
	chain, err := server.NewChain(server.ChainConfig{
		Authenticator: who, Authorizer: everybody{}, Ready: func() error { return nil }, Drainer: drainer,
		Metrics: metrics.NewRequests(prometheus.NewRegistry()), Logger: zap.NewNop(),
	}, &server.Router{Groups: dispatch.New(dispatch.Config{
		Routes:             func() *routetable.Table { f.mu.Lock(); defer f.mu.Unlock(); return f.table },
		LocalGroupVersions: func() sets.Set[schema.GroupVersion] { return sets.New(schema.GroupVersion{Version: "v1"}) },
		Local: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"kind":"NamespaceList","apiVersion":"v1","metadata":{},"items":[]}`)
		}),
		Proxy: carrier,
	})})
	if err != nil {
		f.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatal(err)
	}
	f.address = listener.Addr().String()
	s := server.New(server.Config{
		Listener: listener, TLS: pki.ServerConfig(f.pair(pki.Leaf{CommonName: "front", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true})),
		Handler: chain, Health: server.NewHealth(zap.NewNop()), Drainer: drainer, Proxy: carrier, Logger: zap.NewNop(),
		ShutdownGrace: time.Second,
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	g := &run.Group{}
	g.Add(run.Member{Name: "port", Ready: s.Accepts(), Run: s.Accept})
	g.Add(run.Member{Name: "listener", Ready: s.Ready(), Run: s.Run})
	go func() { done <- g.Run(ctx) }()
	<-s.Ready()
	f.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			f.t.Error(err)
		}
	})
}

// newClient is alice, with a certificate, over connections of her own.
func (f *front) newClient() *http.Client {
	f.t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(f.ca.Certificate)
	alice := f.pair(pki.Leaf{CommonName: "alice", Organizations: []string{"dev"}, Client: true})
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, GetClientCertificate: alice.GetClientCertificate},
		ForceAttemptHTTP2: true,
	}
	f.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}
}

// register puts endpoints behind the Service name and serves <name>.example.com/v1 from them.
func (f *front) register(name string, limit int, addresses ...string) *transport.Backend {
	f.t.Helper()
	spec := transport.Spec{Name: "ns/" + name + ":443", ServerName: name + ".ns.svc", CABundle: f.ca.PEM(), MaxInFlight: limit}
	for _, a := range addresses {
		spec.Endpoints = append(spec.Endpoints, transport.Endpoint{Address: a})
	}
	b, err := f.set.Backend(spec)
	if err != nil {
		f.t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.routes = append(f.routes, &routetable.Route{
		GroupVersion: schema.GroupVersion{Group: name + ".example.com", Version: "v1"}, Name: "v1." + name + ".example.com", Backend: b,
		Condition: apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue},
	})
	f.table = routetable.NewTable(append([]*routetable.Route{}, f.routes...), true)
	return b
}

// path is a collection of the backend that was registered by name.
func path(name string) string { return "/apis/" + name + ".example.com/v1/namespaces/n/foos" }

const local = "/api/v1/namespaces"

// send makes one request; any answer but 2xx is an error.
func (f *front) send(client *http.Client, method, path, body string) error {
	r, err := http.NewRequest(method, "https://"+f.address+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	if body == "" {
		r.Body = http.NoBody
	}
	res, err := client.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err == nil && res.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	return err
}

// certificate returns the TLS configuration of endpoints of the Service name.
func (f *front) certificate(name string) *tls.Config {
	f.t.Helper()
	return pki.ServerConfig(f.pair(pki.Leaf{CommonName: name, DNSNames: []string{name + ".ns.svc"}, Server: true}))
}
