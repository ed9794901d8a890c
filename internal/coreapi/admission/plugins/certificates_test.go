package plugins

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// rights contains entries of the form "verb name" for signers.
type signerRights []string

func (r signerRights) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetAPIGroup() != "certificates.k8s.io" || a.GetResource() != "signers" || a.GetName() == "broken.example.com/x" {
		return authorizer.DecisionAllow, "", errors.New("not this question")
	}
	for _, right := range r {
		if right == a.GetVerb()+" "+a.GetName() {
			return authorizer.DecisionAllow, "", nil
		}
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (r signerRights) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(r.Authorize(ctx, a))
}

func csr(signer string, change ...func(*certificatesv1.CertificateSigningRequest)) *certificatesv1.CertificateSigningRequest {
	r := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: signer}}
	for _, f := range change {
		f(r)
	}
	return r
}

func certificateAttributes(obj, old runtime.Object, operation admission.Operation, subresource string) admission.Attributes {
	gv := certificatesv1.SchemeGroupVersion
	return admission.NewAttributesRecord(obj, old, gv.WithKind("CertificateSigningRequest"), "", "r",
		gv.WithResource("certificatesigningrequests"), subresource, operation, nil, false, &user.DefaultInfo{Name: "jane"})
}

func TestApprovingAndSigningNeedTheSignerRight(t *testing.T) {
	const signer = "example.com/client"
	signed := func(r *certificatesv1.CertificateSigningRequest) { r.Status.Certificate = []byte("x") }
	failed := func(r *certificatesv1.CertificateSigningRequest) {
		r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateFailed}}
	}
	for name, c := range map[string]struct {
		rights      signerRights
		old, now    *certificatesv1.CertificateSigningRequest
		subresource string
		refused     string
	}{
		"approve without the right":           {nil, csr(signer), csr(signer), "approval", `user not permitted to approve requests with signerName "example.com/client"`},
		"approve with the right":              {signerRights{"approve example.com/client"}, csr(signer), csr(signer), "approval", ""},
		"with the right to the domain":        {signerRights{"approve example.com/*"}, csr(signer), csr(signer), "approval", ""},
		"with the right to sign":              {signerRights{"sign example.com/client"}, csr(signer), csr(signer), "approval", "not permitted to approve"},
		"with the right to another's signer":  {signerRights{"approve example.com/client"}, csr("other.example.com/x"), csr(signer), "approval", "not permitted to approve"},
		"when the authorizer fails":           {nil, csr("broken.example.com/x"), csr(signer), "approval", "not permitted to approve"},
		"sign without the right":              {signerRights{"approve example.com/client"}, csr(signer), csr(signer, signed), "status", `user not permitted to sign requests with signerName "example.com/client"`},
		"a condition without the right":       {nil, csr(signer), csr(signer, failed), "status", "not permitted to sign"},
		"sign with the right":                 {signerRights{"sign example.com/*"}, csr(signer), csr(signer, signed), "status", ""},
		"a status that says the same":         {nil, csr(signer, signed), csr(signer, signed), "status", ""},
		"an update of the request, not these": {nil, csr(signer), csr(signer, signed), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := certificateAttributes(c.now, c.old, admission.Update, c.subresource)
			err := errors.Join(certificateApproval{c.rights}.Validate(t.Context(), a, nil), certificateSigning{c.rights}.Validate(t.Context(), a, nil))
			switch {
			case c.refused == "" && err != nil:
				t.Errorf("Validate failed: %v, want no error", err)
			case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
				t.Errorf("Validate error = %v, want an error that contains %q", err, c.refused)
			}
		})
	}
}

func TestCertificateRequestsForSystemMastersAreRejected(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request := func(groups ...string) []byte {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane", Organization: groups}}, key)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	}
	for name, c := range map[string]struct {
		signer  string
		request []byte
		refused string
	}{
		"as a master":              {certificatesv1.KubeAPIServerClientSignerName, request("people", "system:masters"), "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"},
		"as one of many":           {certificatesv1.KubeAPIServerClientSignerName, request("people"), ""},
		"something unreadable":     {certificatesv1.KubeAPIServerClientSignerName, []byte("x"), "failed to parse CSR"},
		"a master for another use": {"example.com/client", request("system:masters"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			obj := csr(c.signer, func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Request = c.request })
			err := certificateSubjectRestriction{}.Validate(t.Context(), certificateAttributes(obj, nil, admission.Create, ""), nil)
			switch {
			case c.refused == "" && err != nil:
				t.Errorf("Validate failed: %v, want no error", err)
			case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
				t.Errorf("Validate error = %v, want an error that contains %q", err, c.refused)
			}
		})
	}
}

func TestAttestingTrustBundlesNeedsTheSignerRight(t *testing.T) {
	const signer = "example.com/ca"
	bundle := func(signer, text string) *certificatesv1.ClusterTrustBundle {
		return &certificatesv1.ClusterTrustBundle{Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: text}}
	}
	owned, labelled := bundle(signer, "x"), bundle(signer, "x")
	owned.OwnerReferences, labelled.Labels = []metav1.OwnerReference{{Name: "o"}}, map[string]string{"a": "b"}
	for name, c := range map[string]struct {
		rights   signerRights
		now, old *certificatesv1.ClusterTrustBundle
		refused  bool
	}{
		"of nobody":                      {now: bundle("", "x")},
		"of a signer, without the right": {now: bundle(signer, "x"), refused: true},
		"with the right to sign":         {rights: signerRights{"sign " + signer}, now: bundle(signer, "x"), refused: true},
		"with the right":                 {rights: signerRights{"attest " + signer}, now: bundle(signer, "x")},
		"with the right to the domain":   {rights: signerRights{"attest example.com/*"}, now: bundle(signer, "x")},
		"other anchors":                  {now: bundle(signer, "y"), old: bundle(signer, "x"), refused: true},
		"a label, by which pods choose":  {now: labelled, old: bundle(signer, "x"), refused: true},
		"what the collector changes":     {now: owned, old: bundle(signer, "x")},
	} {
		t.Run(name, func(t *testing.T) {
			a := certificateAttributes(c.now, nil, admission.Create, "")
			if c.old != nil {
				a = certificateAttributes(c.now, c.old, admission.Update, "")
			}
			if err := (clusterTrustBundleAttest{c.rights}).Validate(t.Context(), a, nil); (err != nil) != c.refused {
				t.Errorf("Validate error = %v, want an error: %v", err, c.refused)
			}
		})
	}
}
