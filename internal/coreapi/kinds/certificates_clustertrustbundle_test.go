package kinds_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

// anchor returns a certificate that a new key signs. It is for that key if of is nil.
func anchor(t *testing.T, of crypto.PublicKey, authority bool, life time.Duration) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if of == nil {
		of = &key.PublicKey
	}
	begin := time.Now().Truncate(time.Second)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: begin, NotAfter: begin.Add(life), IsCA: authority, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, of, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestTrustBundles(t *testing.T) {
	authority := anchor(t, nil, true, time.Hour)
	of := func(name, signer, text string) *certificatesv1.ClusterTrustBundle {
		return &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: text}}
	}
	const of1 = "example.com:foo:a"
	path := "spec.trustBundle: Invalid value: \"<value omitted>\": "
	kindtest.Refuses(t, []kindtest.Create{
		{"of nobody", of("a", "", authority+anchor(t, nil, true, time.Hour)), nil},
		{"of a signer", of(of1, "example.com/foo", authority), nil},
		{"of nobody, by a signer's name", of(of1, "", authority), []string{`metadata.name: Invalid value: "example.com:foo:a": ClusterTrustBundle without signer name must not have ":" in its name`}},
		{"of a signer, by another name", of("a", "example.com/foo", authority), []string{`metadata.name: Invalid value: "a": ClusterTrustBundle for signerName example.com/foo must be named with prefix example.com:foo:`}},
		{"with nothing in it", of("a", "", "nothing"), []string{path + "at least one trust anchor must be provided"}},
		{"with a key in it", of("a", "", "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"), []string{path + "entry 0 has bad block type: EC PRIVATE KEY"}},
		{"with nobody's certificate", of("a", "", authority+anchor(t, nil, false, time.Hour)), []string{path + "entry 1 does not have the CA bit set"}},
		{"with what is no certificate", of("a", "", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), []string{path + "entry 0 does not parse as X.509"}},
		{"with a header", of("a", "", strings.Replace(authority, "-----\n", "-----\nk: v\n\n", 1)), []string{path + "entry 0 has PEM block headers"}},
		{"with the same twice", of("a", "", authority+authority), []string{path + "duplicate trust anchor (indices [0 1])"}},
		{"too long", of("a", "", strings.Repeat("x", 1<<20+1)), []string{"spec.trustBundle: Too long: may not be more than 1048576 bytes"}},
	})
	stored := of("a", "", "of an older release")
	stored.ResourceVersion = "1"
	kindtest.Changes(t, stored, map[string]kindtest.Change[*certificatesv1.ClusterTrustBundle]{
		"a label beside anchors that parse no more": {func(b *certificatesv1.ClusterTrustBundle) { b.Labels = map[string]string{"a": "b"} }, nil},
		"other anchors": {func(b *certificatesv1.ClusterTrustBundle) { b.Spec.TrustBundle = "x" }, []string{path + "at least one trust anchor must be provided"}},
		"another signer": {func(b *certificatesv1.ClusterTrustBundle) { b.Spec.SignerName = "example.com/foo" }, []string{
			"metadata.name: Invalid value: ...", `spec.signerName: Invalid value: "example.com/foo": field is immutable`}},
	})
}
