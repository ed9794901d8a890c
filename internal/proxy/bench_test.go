package proxy

import (
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/filters"
	"portico.dev/internal/pki"
	"portico.dev/internal/request"
	"portico.dev/internal/transport"
)

// BenchmarkServe compares one proxied request with a bare httputil.ReverseProxy that has the same TLS, the same backend and
// HTTP/2 to it. The client's side is a handler call, so the difference is the cost of the proxy.
//
//	go test -run xxx -bench Serve -benchmem ./internal/proxy
func BenchmarkServe(b *testing.B) {
	for _, size := range []struct {
		name string
		body string
	}{{"1KB", strings.Repeat("x", 1<<10)}, {"100KB", strings.Repeat("x", 100<<10)}} {
		backend, w := benchBackend(b, size.body)
		for _, candidate := range []struct {
			name    string
			handler http.Handler
		}{
			{"portico", w.handler(b, backend)},
			{"reverseproxy", w.bare(b, backend)},
		} {
			b.Run(size.name+"/"+candidate.name, func(b *testing.B) {
				b.ReportAllocs()
				b.SetParallelism(16)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						benchOnce(b, candidate.handler, len(size.body))
					}
				})
			})
		}
	}
}

// pool lets the bare proxy use the same buffers.
type pool struct{}

func (pool) Get() []byte  { return *buffers.Get().(*[]byte) }
func (pool) Put(b []byte) { buffers.Put(&b) }

// discard is a response writer that counts the bytes.
type discard struct {
	header http.Header
	code   int
	n      int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(code int)        { d.code = code }
func (d *discard) Write(p []byte) (int, error) { d.n += len(p); return len(p), nil }
func (d *discard) Flush()                      {}

func benchOnce(b *testing.B, h http.Handler, want int) {
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "https://front"+resource, http.NoBody)
	if err != nil {
		b.Error(err)
		return
	}
	r.RemoteAddr = "10.0.0.1:1234"
	r.Header["User-Agent"] = []string{"kubectl/v1.37.1"}
	r.Header["Accept"] = []string{"application/json"}
	d := &discard{header: make(http.Header)}
	h.ServeHTTP(d, r)
	if d.n != want {
		b.Errorf("status %d with %d bytes, want %d bytes", d.code, d.n, want)
	}
}

func benchBackend(b *testing.B, body string) (string, *bench) {
	ca, err := pki.NewAuthority("bench")
	if err != nil {
		b.Fatal(err)
	}
	w := &bench{ca: ca}
	address, stop := w.serve(b, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(rw, body)
	}))
	b.Cleanup(stop)
	return address, w
}

type bench struct{ ca *pki.Authority }

func (w *bench) pair(b *testing.B, l pki.Leaf) *pki.KeyPair {
	cert, key, err := w.ca.Issue(l)
	if err != nil {
		b.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(cert, key)
	if err != nil {
		b.Fatal(err)
	}
	return pair
}

func (w *bench) serve(b *testing.B, h http.Handler) (string, func()) {
	pair := w.pair(b, pki.Leaf{DNSNames: []string{serviceName}, Server: true})
	return serveTLS(b, pki.ServerConfig(pair), h)
}

func (w *bench) handler(b *testing.B, address string) http.Handler {
	set := transport.New(transport.Options{
		AllowLoopback: true,
		MaxInFlight:   10_000,
		Certificate:   w.pair(b, pki.Leaf{CommonName: "front", Client: true}),
	})
	b.Cleanup(set.Close)
	backend, err := set.Backend(transport.Spec{
		Name: "ns/svc:443", ServerName: serviceName, CABundle: w.ca.PEM(), Endpoints: []transport.Endpoint{{Address: address}},
	})
	if err != nil {
		b.Fatal(err)
	}
	p := New(Config{})
	info := &apirequest.RequestInfo{
		IsResourceRequest: true, Verb: "get", APIGroup: "metrics.example.com", APIVersion: "v1", Resource: "nodes", Name: "a",
	}
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		ctx := apirequest.WithRequestInfo(apirequest.WithUser(r.Context(), alice), info)
		p.Serve(rw, filters.RequestOf(r.WithContext(request.WithAuditID(ctx, "audit-1"))), Destination{Backend: backend, APIService: apiService})
	})
}

func (w *bench) bare(b *testing.B, address string) http.Handler {
	config, err := pki.ClientConfig(pki.ClientOptions{
		ServerName: serviceName, Roots: w.ca.PEM(), Certificate: w.pair(b, pki.Leaf{CommonName: "front", Client: true}),
	})
	if err != nil {
		b.Fatal(err)
	}
	t := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true}
	b.Cleanup(t.CloseIdleConnections)
	to := &url.URL{Scheme: "https", Host: address}
	return &httputil.ReverseProxy{
		Transport:  t,
		BufferPool: pool{},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.SetXForwarded()
			r.Out.Header["X-Remote-User"] = []string{alice.Name}
			r.Out.Header["X-Remote-Group"] = alice.Groups
		},
	}
}
