package transport

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
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
