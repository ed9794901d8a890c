package fleet

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"portico.dev/internal/auth/authtest"
	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/pki"
	"portico.dev/internal/transport"
)

// BenchmarkGet compares a GET of 1 KB through the front door with one through httputil.ReverseProxy. Both have TLS on both sides.
func BenchmarkGet(b *testing.B) {
	body := strings.Repeat("x", 1024)
	api := authtest.Serve(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			_, _ = io.WriteString(w, body)
		}
	}))
	at, err := url.Parse(api.URL)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("front door", func(b *testing.B) {
		e := newEnv(b)
		e.fleet.config.Transport = transport.Options{}
		e.secrets.Add(secret("a", map[string]string{"token": secretToken}))
		c := &v1alpha1.Cluster{}
		c.Name = "a"
		c.Spec.Server = v1alpha1.ClusterServer{Endpoints: []string{at.Host}, ServerName: "127.0.0.1", CABundle: api.RootPEM}
		c.Spec.Credentials.Secret = &v1alpha1.SecretReference{Namespace: "ns", Name: "a"}
		e.add(c)
		e.leads.Store(false)
		e.fleet.config.Chain.Audit, e.fleet.config.Chain.AccessLog = nil, nil
		handler, err := e.fleet.Handler(http.NotFoundHandler())
		if err != nil {
			b.Fatal(err)
		}
		e.run()
		link := e.fleet.members.Load().byName["a"].link
		for changed := link.Changed(); !link.State().Ready; changed = link.Changed() {
			select {
			case <-changed:
			case <-time.After(time.Second):
			}
		}
		measure(b, handler, "/clusters/a/api/v1/namespaces/ns/configmaps/c", len(body))
	})
	b.Run("httputil", func(b *testing.B) {
		config, err := pki.ClientConfig(pki.ClientOptions{ServerName: "127.0.0.1", Roots: api.RootPEM})
		if err != nil {
			b.Fatal(err)
		}
		through := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
		b.Cleanup(through.CloseIdleConnections)
		p := &httputil.ReverseProxy{Transport: through, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(at) }}
		measure(b, p, "/api/v1/namespaces/ns/configmaps/c", len(body))
	})
}

func measure(b *testing.B, h http.Handler, path string, size int) {
	front := authtest.Serve(b, h)
	c := front.Client(b, nil)
	get := func() {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, front.URL+path, nil)
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer alice")
		resp, err := c.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		data, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || len(data) != size {
			b.Fatalf("%d %.200s, %v; want %d bytes", resp.StatusCode, data, err, size)
		}
	}
	get()
	b.ReportAllocs()
	for b.Loop() {
		get()
	}
}

// BenchmarkIdleMembers reports the memory of 500 Clusters whose API servers do not answer.
func BenchmarkIdleMembers(b *testing.B) {
	const clusters = 500
	e := newEnv(b)
	e.leads.Store(false)
	e.fleet.config.Transport = transport.Options{Tunnel: &transport.Tunnel{Network: "memory", Received: time.Now, Dial: func(ctx context.Context, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}}
	e.run()
	before := memory()
	for i := range clusters {
		name := fmt.Sprint("c", i)
		e.secrets.Add(secret(name, map[string]string{"token": secretToken}))
		c := &v1alpha1.Cluster{}
		c.Name = name
		c.Spec.Server = v1alpha1.ClusterServer{Endpoints: []string{"10.0.0.1:6443", "10.0.0.2:6443", "10.0.0.3:6443"}, CABundle: e.ca.PEM()}
		c.Spec.Credentials.Secret = &v1alpha1.SecretReference{Namespace: "ns", Name: name}
		e.add(c)
	}
	for len(e.fleet.members.Load().byName) < clusters {
		runtime.Gosched()
	}
	after, began := memory(), time.Now()
	e.fleet.sync(b.Context())
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(time.Since(began).Microseconds()), "µs/sync")
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/clusters/1024, "heap-KiB/cluster")
	b.ReportMetric(float64(after.StackInuse-before.StackInuse)/clusters/1024, "stack-KiB/cluster")
}

func memory() (m runtime.MemStats) {
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}
