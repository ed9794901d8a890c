package validate_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
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
	"k8s.io/utils/ptr"
)

// anchor is a certificate of an authority, or of none, for the key of somebody.
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
	refuses(t, []create{
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
	changes(t, stored, map[string]struct {
		change func(*certificatesv1.ClusterTrustBundle)
		want   []string
	}{
		"a label beside anchors that parse no more": {func(b *certificatesv1.ClusterTrustBundle) { b.Labels = map[string]string{"a": "b"} }, nil},
		"other anchors": {func(b *certificatesv1.ClusterTrustBundle) { b.Spec.TrustBundle = "x" }, []string{path + "at least one trust anchor must be provided"}},
		"another signer": {func(b *certificatesv1.ClusterTrustBundle) { b.Spec.SignerName = "example.com/foo" }, []string{
			"metadata.name: Invalid value: ...", `spec.signerName: Invalid value: "example.com/foo": field is immutable`}},
	})
}

func podCertificateOf(t *testing.T) (*certificatesv1.PodCertificateRequest, crypto.PublicKey) {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", ResourceVersion: "1"},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: "example.com/foo", PodName: "p", PodUID: "1", ServiceAccountName: "s", ServiceAccountUID: "2", NodeName: "n", NodeUID: "3",
			MaxExpirationSeconds: ptr.To(int32(86400)), StubPKCS10Request: der,
		},
	}, public
}

func TestPodCertificatesAreAskedFor(t *testing.T) {
	for situation, c := range map[string]struct {
		change func(*certificatesv1.PodCertificateRequestSpec)
		want   []string
	}{
		"nothing wrong":         {func(*certificatesv1.PodCertificateRequestSpec) {}, nil},
		"nobody's":              {func(s *certificatesv1.PodCertificateRequestSpec) { s.PodUID, s.NodeName = "", "N" }, []string{`spec.podUID: Invalid value: "": must not be empty`, `spec.nodeName: Invalid value: "N": ...`}},
		"a long identity":       {func(s *certificatesv1.PodCertificateRequestSpec) { s.NodeUID = "xxxxxxxx" }, nil},
		"for less than an hour": {func(s *certificatesv1.PodCertificateRequestSpec) { *s.MaxExpirationSeconds = 60 }, []string{"spec.maxExpirationSeconds: Invalid value: 60: must be in the range [3600, 7862400]"}},
		"for two days, of our own": {func(s *certificatesv1.PodCertificateRequestSpec) {
			s.SignerName, *s.MaxExpirationSeconds = "kubernetes.io/x", 172800
		}, []string{"spec.maxExpirationSeconds: Invalid value: 172800: must be in the range [3600, 86400]"}},
		"without a proof": {func(s *certificatesv1.PodCertificateRequestSpec) { s.StubPKCS10Request = nil }, []string{"spec.stubPKCS10Request: Required value: must be set"}},
		"with somebody else's": {func(s *certificatesv1.PodCertificateRequestSpec) {
			s.StubPKCS10Request[len(s.StubPKCS10Request)-1] ^= 1
		}, []string{"spec.stubPKCS10Request: Invalid value: invalid signature"}},
		"an annotation for anybody": {func(s *certificatesv1.PodCertificateRequestSpec) {
			s.UnverifiedUserAnnotations = map[string]string{"k": "v"}
		}, []string{`spec.unverifiedUserAnnotations: Invalid value: "k": must be a domain-prefixed key (such as "acme.io/foo")`}},
	} {
		t.Run(situation, func(t *testing.T) {
			r, _ := podCertificateOf(t)
			r.ResourceVersion = ""
			c.change(&r.Spec)
			refused(t, createErrors(r), c.want...)
		})
	}
	r, _ := podCertificateOf(t)
	other := r.DeepCopy()
	other.Spec.PodName = "q"
	refused(t, updateErrors(other, r), "spec: Invalid value: ...")
}

// Once decided, and only with what was asked for.
func TestPodCertificatesAreIssued(t *testing.T) {
	asked, key := podCertificateOf(t)
	condition := func(kind string) []metav1.Condition {
		return []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue, Reason: "R", LastTransitionTime: metav1.Now()}}
	}
	issue := func(r *certificatesv1.PodCertificateRequest, chain string) {
		block, _ := pem.Decode([]byte(chain))
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		r.Status = certificatesv1.PodCertificateRequestStatus{
			Conditions: condition("Issued"), CertificateChain: chain, NotBefore: &metav1.Time{Time: leaf.NotBefore},
			NotAfter: &metav1.Time{Time: leaf.NotAfter}, BeginRefreshAt: &metav1.Time{Time: leaf.NotBefore.Add(30 * time.Minute)},
		}
	}
	good := anchor(t, key, false, 2*time.Hour)
	const terminal = "status: Invalid value: immutable after PodCertificateRequest is issued, denied, or failed"
	type request = certificatesv1.PodCertificateRequest
	for situation, c := range map[string]struct {
		before, change func(*request)
		want           []string
	}{
		"as it was asked for":      {change: func(r *request) { issue(r, good) }},
		"with a chain":             {change: func(r *request) { issue(r, good+anchor(t, nil, true, time.Hour)) }},
		"denied":                   {change: func(r *request) { r.Status.Conditions = condition("Denied") }},
		"denied, and given":        {change: func(r *request) { issue(r, good); r.Status.Conditions = condition("Denied") }, want: []string{"status: Invalid value: non-condition status fields must be empty when denying or failing the PodCertificateRequest"}},
		"twice":                    {before: func(r *request) { issue(r, good) }, change: func(r *request) { issue(r, anchor(t, key, false, 3*time.Hour)) }, want: []string{terminal}},
		"after all":                {before: func(r *request) { r.Status.Conditions = condition("Denied") }, change: func(r *request) { issue(r, good) }, want: []string{terminal}},
		"without saying so":        {change: func(r *request) { issue(r, good); r.Status.Conditions = nil }, want: []string{"status: Invalid value: status is immutable unless transitioning to ..."}},
		"to somebody else's key":   {change: func(r *request) { issue(r, anchor(t, nil, false, 2*time.Hour)) }, want: []string{"status.certificateChain: Invalid value: ..."}},
		"for too long":             {change: func(r *request) { issue(r, anchor(t, key, false, 48*time.Hour)) }, want: []string{"status.certificateChain: Invalid value: ..."}},
		"for half an hour":         {change: func(r *request) { issue(r, anchor(t, key, false, 59*time.Minute)) }, want: []string{"status.certificateChain: Invalid value: ..."}},
		"with another date":        {change: func(r *request) { issue(r, good); r.Status.NotAfter = ptr.To(metav1.Now()) }, want: []string{"status.notAfter: Invalid value: ..."}},
		"to be refreshed too late": {change: func(r *request) { issue(r, good); r.Status.BeginRefreshAt = r.Status.NotAfter }, want: []string{"status.beginRefreshAt: Invalid value: ..."}},
		"without a date":           {change: func(r *request) { issue(r, good); r.Status.NotBefore = nil }, want: []string{"status.notBefore: Required value: must be present and consistent with the issued certificate"}},
		"as something else":        {change: func(r *request) { issue(r, good); r.Status.Conditions = condition("Approved") }, want: []string{`status.conditions[0].type: Unsupported value: "Approved": supported values: "Issued", "Denied", "Failed"`}},
	} {
		t.Run(situation, func(t *testing.T) {
			before := asked.DeepCopy()
			if c.before != nil {
				c.before(before)
			}
			after := before.DeepCopy()
			c.change(after)
			refused(t, statusErrors(after, before), c.want...)
		})
	}
}
