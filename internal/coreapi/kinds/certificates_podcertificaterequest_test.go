package kinds_test

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

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

func TestInvalidPodCertificateRequestsAreRejected(t *testing.T) {
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
			kindtest.Refused(t, kindtest.CreateErrors(r), c.want...)
		})
	}
	r, _ := podCertificateOf(t)
	other := r.DeepCopy()
	other.Spec.PodName = "q"
	kindtest.Refused(t, kindtest.UpdateErrors(other, r), "spec: Invalid value: ...")
}

// A decision is final, and the issued certificate must match the request.
func TestPodCertificateDecisionIsFinal(t *testing.T) {
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
			kindtest.Refused(t, kindtest.StatusErrors(after, before), c.want...)
		})
	}
}
