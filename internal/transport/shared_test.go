package transport

import (
	"testing"

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
