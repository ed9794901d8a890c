package gateway

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"portico.dev/internal/pki"
)

func encoded(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func always([]byte) bool { return true }

// An authority is replaced while both are believed, and not before all have the new one.
func TestAuthoritiesAreReplacedWithOverlap(t *testing.T) {
	start := time.Now()
	a := &authorities{}
	advance := func(now time.Time, published func([]byte) bool) {
		t.Helper()
		if err := a.advance(now, "x", published); err != nil {
			t.Fatal(err)
		}
		data := map[string][]byte{}
		if err := a.write(data, "x"); err != nil {
			t.Fatal(err)
		}
		read, err := readAuthorities(data, "x") // as the next replica finds it
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(read.bundle(), a.bundle()) {
			t.Fatalf("bundle that was read = %q, want %q", read.bundle(), a.bundle())
		}
		a = read
	}
	certificates := func() int {
		certs, err := pki.ParseBundle(a.bundle())
		if err != nil {
			t.Fatal(err)
		}
		return len(certs)
	}
	advance(start, always)
	first := a.present.Certificate
	advance(start.Add(authorityTTL/2), always)
	if !a.present.Certificate.Equal(first) || certificates() != 1 {
		t.Fatalf("the authority was replaced after half of its lifetime or %d certificates are published, want no change and 1", certificates())
	}
	now := start.Add(authorityTTL/3*2 + time.Hour)
	advance(now, always)
	if !a.present.Certificate.Equal(first) || a.next == nil || certificates() != 2 {
		t.Fatalf("%d certificates are published after two thirds of the lifetime, want 2 with the first one signing", certificates())
	}
	second := a.next.Certificate
	advance(now.Add(publicationTime/2), always)
	advance(now.Add(2*publicationTime), func([]byte) bool { return false })
	if !a.present.Certificate.Equal(first) {
		t.Fatal("the next authority signs before it was published, want the first one")
	}
	advance(now.Add(2*publicationTime), always)
	if !a.present.Certificate.Equal(second) || certificates() != 2 {
		t.Fatalf("the next authority does not sign or the first one is not trusted: %d certificates, want 2", certificates())
	}
	advance(now.Add(2*publicationTime+overlap+time.Minute), always)
	if !a.present.Certificate.Equal(second) || bytes.Contains(a.bundle(), encoded(first)) {
		t.Fatal("the first authority is trusted after the overlap, want only the second one")
	}
	advance(start.Add(3*authorityTTL), always)
	if a.present.Certificate.Equal(second) {
		t.Fatal("the second authority signs after its lifetime, want a new one")
	}
}

// Replicas share authorities, and each has separate certificates.
func TestReplicasShareAuthorities(t *testing.T) {
	secrets := fake.NewClientset().CoreV1().Secrets("portico-gateway")
	replica := func(leads bool) *keys {
		k, err := newKeys(secrets, testGateway, func() bool { return leads }, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		if err := k.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		return k
	}
	one, two := replica(true), replica(false)
	if !bytes.Equal(one.servingBundle(), two.servingBundle()) || !bytes.Equal(one.clientBundle(), two.clientBundle()) {
		t.Fatal("the authorities of two replicas differ, want the same")
	}
	if one.client.Fingerprint() == two.client.Fingerprint() {
		t.Error("two replicas have the same front-proxy certificate, want different ones")
	}
	for _, k := range []*keys{one, two} {
		bundle, err := pki.StaticBundle(one.clientBundle())
		if err != nil || len(k.client.Roots(bundle)) == 0 || k.client.Leaf().Subject.CommonName != testGateway.FrontProxyName() {
			t.Errorf("front-proxy certificate is not by the published authority: %v; want it to be", err)
		}
		bundle, err = pki.StaticBundle(one.servingBundle())
		if err != nil || len(k.serving.Roots(bundle)) == 0 || k.serving.Leaf().VerifyHostname("portico-gateway.portico-gateway.svc") != nil {
			t.Errorf("serving certificate is not valid for API servers: %v; want it to be", err)
		}
		if k.ours(bundle.Certificates()[0]) {
			t.Error("one authority signs both certificates, want two")
		}
	}
	before := one.client.Fingerprint()
	if err := one.sync(t.Context()); err != nil || one.client.Fingerprint() != before {
		t.Errorf("sync of a valid certificate = %v, want no error and no new certificate", err)
	}
	secret, err := secrets.Get(t.Context(), keysSecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret.Data["front-proxy-ca.crt"] = []byte("garbage")
	if _, err := secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := one.sync(t.Context()); err == nil || one.client.Fingerprint() != before {
		t.Errorf("sync with a damaged Secret = %v, want an error and no new certificate", err)
	}
}
