package kinds_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"portico.dev/internal/coreapi/kinds/certificates"
	"portico.dev/internal/coreapi/kinds/kindtest"
)

// certificateRequestOf returns a certificate request that is signed with its key.
func certificateRequestOf(t *testing.T) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: "kubernetes.io/kube-apiserver-client", Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		},
	}
}

func certificateOf(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestInvalidCertificateRequestsAreRejected(t *testing.T) {
	for situation, c := range map[string]struct {
		change func(*certificatesv1.CertificateSigningRequest)
		want   []string
	}{
		"nothing wrong": {func(*certificatesv1.CertificateSigningRequest) {}, nil},
		"no PEM":        {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Request = []byte("x") }, []string{"spec.request: Invalid value: ..."}},
		"no usages":     {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Usages = nil }, []string{"spec.usages: Required value"}},
		"a usage that is not": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Usages = append(r.Spec.Usages, "fun", "client auth")
		}, []string{"spec.usages[1]: Unsupported value: ...", `spec.usages[2]: Duplicate value: "client auth"`}},
		"no signer": {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = "" }, []string{"spec.signerName: Required value"}},
		"a signer without a domain": {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = "me" },
			[]string{`spec.signerName: Invalid value: "me": must be a fully qualified domain and path of the form 'example.com/signer-name'`}},
		"a signer of one label": {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = "me/a" },
			[]string{`spec.signerName: Invalid value: "me": should be a domain with at least two segments separated by dots`}},
		"the signer of old": {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = "kubernetes.io/legacy-unknown" },
			[]string{`spec.signerName: Invalid value: "kubernetes.io/legacy-unknown": the legacy signerName is not allowed via this API version`}},
		"for a minute": {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.ExpirationSeconds = ptr.To[int32](60) },
			[]string{"spec.expirationSeconds: Invalid value: 60: may not specify a duration less than 600 seconds (10 minutes)"}},
		"signed by another key": {func(r *certificatesv1.CertificateSigningRequest) {
			block, _ := pem.Decode(r.Spec.Request)
			block.Bytes[len(block.Bytes)-1] ^= 1
			r.Spec.Request = pem.EncodeToMemory(block)
		}, []string{"spec.request: Invalid value: ..."}},
	} {
		t.Run(situation, func(t *testing.T) {
			r := certificateRequestOf(t)
			c.change(r)
			kindtest.Refused(t, kindtest.CreateErrors(r), c.want...)
		})
	}
}

func TestCSRSubresourcesChangeOnlyTheirFields(t *testing.T) {
	condition := func(kind certificatesv1.RequestConditionType) certificatesv1.CertificateSigningRequestCondition {
		return certificatesv1.CertificateSigningRequestCondition{Type: kind, Status: corev1.ConditionTrue}
	}
	stored := certificateRequestOf(t)
	with := func(conditions ...certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequest {
		r := stored.DeepCopy()
		for _, kind := range conditions {
			r.Status.Conditions = append(r.Status.Conditions, condition(kind))
		}
		return r
	}
	approved, denied := with(certificatesv1.CertificateApproved), with(certificatesv1.CertificateDenied)
	issued := approved.DeepCopy()
	issued.Status.Certificate = certificateOf(t)

	kindtest.Refused(t, certificates.CertificateApproval(approved, stored))
	kindtest.Refused(t, certificates.CertificateApproval(with(certificatesv1.CertificateApproved, certificatesv1.CertificateDenied), stored),
		`status.conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive`)
	kindtest.Refused(t, certificates.CertificateApproval(stored, denied), `status.conditions: Forbidden: updates may not remove a condition of type "Denied"`)
	kindtest.Refused(t, certificates.CertificateApproval(issued, approved), "status.certificate: Forbidden: updates may not set certificate content")
	kindtest.Refused(t, kindtest.StatusErrors(issued, approved))
	kindtest.Refused(t, kindtest.StatusErrors(approved, stored), `status.conditions: Forbidden: updates may not add a condition of type "Approved"`)
	kindtest.Refused(t, kindtest.StatusErrors(with(certificatesv1.CertificateFailed), stored))
	kindtest.Refused(t, kindtest.UpdateErrors(issued, approved), "status.certificate: Forbidden: updates may not set certificate content")

	again := issued.DeepCopy()
	again.Status.Certificate = certificateOf(t)
	kindtest.Refused(t, kindtest.StatusErrors(again, issued), "status.certificate: Forbidden: updates may not modify existing certificate content")
	again = approved.DeepCopy()
	again.Status.Certificate = []byte(strings.ReplaceAll(string(issued.Status.Certificate), "CERTIFICATE", "PRIVATE KEY"))
	kindtest.Refused(t, kindtest.StatusErrors(again, approved),
		`status.certificate: Invalid value: "<certificate data>": only CERTIFICATE PEM blocks are allowed, found "PRIVATE KEY"`)
	uncertain := approved.DeepCopy()
	uncertain.Status.Conditions[0].Status = corev1.ConditionFalse
	kindtest.Refused(t, certificates.CertificateApproval(uncertain, stored), `status.conditions[0].status: Unsupported value: "False": supported values: "True"`)
}
