package transport

import (
	"testing"

	"portico.dev/internal/pki"
)

// A thousand backends of one authority would otherwise keep its certificates a thousand times.
func TestBackendsOfOneAuthorityShareItsCertificates(t *testing.T) {
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
		t.Error("two backends of one authority keep its certificates twice")
	}
	if c.tls.RootCAs.Equal(a.tls.RootCAs) {
		t.Error("a backend trusts the authority of another")
	}
	if system.tls.RootCAs != nil {
		t.Error("a backend without a bundle has roots of its own")
	}
}
