package transport

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"portico.dev/internal/metrics"
	"portico.dev/internal/pki"
)

// Without sharing, a thousand backends of one authority would keep a thousand copies of its certificates.
func TestBackendsOfOneCAShareItsCertificates(t *testing.T) {
	one, err := pki.NewAuthority("one")
	if err != nil {
		t.Fatal(err)
	}
	other, err := pki.NewAuthority("other")
	if err != nil {
		t.Fatal(err)
	}
	s := New(Options{})
	defer s.Close()
	made := func(name string, ca []byte) *Backend {
		b, err := s.Backend(Spec{Name: name, ServerName: name, CABundle: ca})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	a, b, c, system := made("a", one.PEM()), made("b", one.PEM()), made("c", other.PEM()), made("d", nil)
	if a.tls.RootCAs != b.tls.RootCAs {
		t.Error("two backends of one authority have different certificate pools, want a shared one")
	}
	if c.tls.RootCAs.Equal(a.tls.RootCAs) {
		t.Error("backends of different authorities have equal certificate pools, want different ones")
	}
	if system.tls.RootCAs != nil {
		t.Error("a backend without a CA bundle has a certificate pool, want nil for the system's roots")
	}
}

// APIServices of one Service with different CA bundles have different backends, whose reports and metrics differ in the
// label trust only.
func TestTrustTellsBackendsOfOneServiceApart(t *testing.T) {
	authority, err := pki.NewAuthority("one")
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	s := New(Options{Metrics: metrics.NewBackends(registry)})
	defer s.Close()
	const name = "ns/a:443"
	of := map[string]*Backend{}
	for _, spec := range []Spec{{Name: name}, {Name: name, Insecure: true}, {Name: name, CABundle: authority.PEM()}} {
		b, err := s.Backend(spec)
		if err != nil {
			t.Fatal(err)
		}
		trust := Trust(spec.CABundle, spec.Insecure)
		if got := b.Report().Trust; got != trust {
			t.Errorf("trust of the report = %q, want %q", got, trust)
		}
		of[trust] = b
	}
	sum := sha256.Sum256(authority.PEM())
	fingerprint := "sha256:" + hex.EncodeToString(sum[:])[:8]
	if got, want := slices.Sorted(maps.Keys(of)), []string{"insecure", fingerprint, "system"}; !slices.Equal(got, want) {
		t.Errorf("labels = %q, want %q", got, want)
	}
	series := func() (labels []string) {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != "portico_backend_ejections_total" {
				continue
			}
			for _, m := range f.GetMetric() {
				labels = append(labels, m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue())
			}
		}
		return labels
	}
	if got, want := series(), []string{name + " insecure", name + " " + fingerprint, name + " system"}; !slices.Equal(got, want) {
		t.Errorf("labels of the series = %q, want %q", got, want)
	}
	s.Retain(map[*Backend]bool{of["system"]: true})
	if got, want := series(), []string{name + " system"}; !slices.Equal(got, want) {
		t.Errorf("labels of the series after the other backends were removed = %q, want %q", got, want)
	}
}

func TestSetsShareTheLimitsOfTheirParent(t *testing.T) {
	w := newTestEnv(t)
	at := w.serve(text("ok")).address
	parent := w.set(func(o *Options) { o.MaxReplayTotal = 1000 })
	first, second := w.set(func(o *Options) { o.Parent = parent }), New(Options{Parent: parent, AllowLoopback: true, Certificate: w.front})
	for _, s := range []*Set{first, second} {
		if body, err := get(t, w.backend(s, at)); err != nil || body != "ok" {
			t.Fatalf("GET through a Set with a parent = %q, %v, want ok", body, err)
		}
	}
	if !first.replays.take(900) || second.replays.take(900) || first.KeptBodies() != parent.KeptBodies() {
		t.Errorf("two Sets keep %d and %d bytes, want 900 for both together", first.KeptBodies(), second.KeptBodies())
	}
	second.Close()
	if first.checker != parent.checker || first.checker.closed {
		t.Error("the connections of a Set are not checked after another one with its parent was closed, want them to be")
	}
}

// A server that prefers the user of a certificate to the user of a token must not get the certificate with every request.
func TestConnectionsWithDifferentCertificatesAreNotShared(t *testing.T) {
	w := newTestEnv(t)
	at := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		name := "none"
		if len(r.TLS.PeerCertificates) > 0 {
			name = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		_, _ = io.WriteString(rw, name)
	})).address
	set := w.set(func(o *Options) { o.Certificate = nil })
	pairs := map[string]*pki.KeyPair{"a": w.pair(pki.Leaf{CommonName: "a", Client: true}), "b": w.pair(pki.Leaf{CommonName: "b", Client: true})}
	for range 2 {
		for _, name := range []string{"none", "a", "b"} {
			spec := w.spec(at)
			spec.Certificate = pairs[name]
			b, err := set.Backend(spec)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := get(t, b); err != nil || got != name {
				t.Errorf("the server saw the certificate %q, %v, want %q", got, err, name)
			}
		}
	}
}
