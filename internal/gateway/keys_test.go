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
			t.Fatal("what was written is not what is read")
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
		t.Fatal("it was replaced early")
	}
	now := start.Add(authorityTTL/3*2 + time.Hour)
	advance(now, always)
	if !a.present.Certificate.Equal(first) || a.next == nil || certificates() != 2 {
		t.Fatal("the next one has to be published before it signs")
	}
	second := a.next.Certificate
	advance(now.Add(publicationTime/2), always)
	advance(now.Add(2*publicationTime), func([]byte) bool { return false })
	if !a.present.Certificate.Equal(first) {
		t.Fatal("it signs although it was not published")
	}
	advance(now.Add(2*publicationTime), always)
	if !a.present.Certificate.Equal(second) || certificates() != 2 {
		t.Fatalf("it does not sign, or the old one is not believed any more: %d certificates", certificates())
	}
	advance(now.Add(2*publicationTime+overlap+time.Minute), always)
	if !a.present.Certificate.Equal(second) || bytes.Contains(a.bundle(), encoded(first)) {
		t.Fatal("the old one is still believed")
	}
	advance(start.Add(3*authorityTTL), always)
	if a.present.Certificate.Equal(second) {
		t.Fatal("an authority that has ended while nothing ran is still there")
	}
}

// Replicas share authorities, and each has certificates of its own.
func TestReplicasShareTheAuthorities(t *testing.T) {
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
		t.Fatal("each has authorities of its own")
	}
	if one.client.Fingerprint() == two.client.Fingerprint() {
		t.Error("a certificate left its process")
	}
	for _, k := range []*keys{one, two} {
		bundle, err := pki.StaticBundle(one.clientBundle())
		if err != nil || len(k.client.Roots(bundle)) == 0 || k.client.Leaf().Subject.CommonName != testGateway.FrontProxyName() {
			t.Errorf("its front-proxy certificate is not by the authority that is published: %v", err)
		}
		bundle, err = pki.StaticBundle(one.servingBundle())
		if err != nil || len(k.serving.Roots(bundle)) == 0 || k.serving.Leaf().VerifyHostname("portico-gateway.portico-gateway.svc") != nil {
			t.Errorf("its serving certificate is not what API servers expect: %v", err)
		}
		if k.ours(bundle.Certificates()[0]) {
			t.Error("one authority signs both")
		}
	}
	before := one.client.Fingerprint()
	if err := one.sync(t.Context()); err != nil || one.client.Fingerprint() != before {
		t.Errorf("a certificate that is good was replaced: %v", err)
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
		t.Errorf("a damaged Secret: %v", err)
	}
}
