package registration

import (
	"context"
	"crypto/x509"
	"testing"
	"testing/synctest"
	"time"

	"portico.dev/internal/pki"
)

func TestCertificateVerifiesForItsNames(t *testing.T) {
	s, err := NewCertificate(CertificateConfig{Names: []string{"metrics.kube-system.svc", "localhost"}})
	must(t, err)
	verify(t, s, "metrics.kube-system.svc")
	verify(t, s, "localhost")
	if err := s.KeyPair().Leaf().VerifyHostname("other.kube-system.svc"); err == nil {
		t.Error("VerifyHostname of a name outside the certificate: error = nil, want an error")
	}
}

func TestCertificateIsRenewedBySameAuthorityInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewCertificate(CertificateConfig{Names: []string{"metrics.kube-system.svc"}, TTL: 90 * time.Hour})
		must(t, err)
		bundle := string(s.CABundle())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		first := s.KeyPair().Fingerprint()
		time.Sleep(59 * time.Hour)
		synctest.Wait()
		if s.KeyPair().Fingerprint() != first {
			t.Error("certificate renewed before two thirds of its lifetime, want the same certificate")
		}
		for range 20 {
			time.Sleep(50 * time.Hour)
			synctest.Wait()
			verify(t, s, "metrics.kube-system.svc")
		}
		if s.KeyPair().Fingerprint() == first {
			t.Error("certificate unchanged after two thirds of its lifetime, want a new one")
		}
		if string(s.CABundle()) != bundle {
			t.Error("caBundle changed after a renewal by the same authority, want it unchanged")
		}
		cancel()
		must(t, <-done)
	})
}

func TestCertificateWithoutNamesIsRejected(t *testing.T) {
	if _, err := NewCertificate(CertificateConfig{}); err == nil {
		t.Error("NewCertificate without names: error = nil, want an error")
	}
}

func verify(t *testing.T, s *Certificate, name string) {
	t.Helper()
	roots, err := pki.StaticBundle(s.CABundle())
	must(t, err)
	_, err = s.KeyPair().Leaf().Verify(x509.VerifyOptions{DNSName: name, Roots: roots.Pool(), CurrentTime: time.Now()})
	must(t, err)
}
