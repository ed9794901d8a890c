package plugins

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	root "portico.dev/internal/coreapi/admission"
)

// The permission to write certificatesigningrequests/approval or /status covers all signers, but the certificates of each
// signer are trusted for a different purpose. Therefore these plugins also require the permission to approve or sign for the
// signer.

// certificateApproval requires the verb "approve" on the signer for approvals and denials.
type certificateApproval struct {
	Authorizer authorizer.UnconditionalAuthorizer
}

// certificateSigning requires the verb "sign" on the signer for writing a certificate or a condition.
type certificateSigning struct {
	Authorizer authorizer.UnconditionalAuthorizer
}

// certificateSubjectRestriction refuses requests for client certificates of this server in the group system:masters.
type certificateSubjectRestriction struct{}

var (
	_ admission.ValidationInterface = certificateApproval{}
	_ admission.ValidationInterface = certificateSigning{}
	_ admission.ValidationInterface = certificateSubjectRestriction{}
)

func (certificateApproval) Handles(operation admission.Operation) bool {
	return operation == admission.Update
}
func (certificateSigning) Handles(operation admission.Operation) bool {
	return operation == admission.Update
}
func (certificateSubjectRestriction) Handles(operation admission.Operation) bool {
	return operation == admission.Create
}

func (p certificateApproval) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !isSigningRequest(a, "approval") {
		return nil
	}
	// The old object decides, because the request must not change the signer.
	old, ok := a.GetOldObject().(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return unexpectedObject(a, a.GetOldObject())
	}
	if signer := old.Spec.SignerName; !root.MayUseSigner(ctx, p.Authorizer, a.GetUserInfo(), "approve", signer) {
		return admission.NewForbidden(a, fmt.Errorf("user not permitted to approve requests with signerName %q", signer))
	}
	return nil
}

func (p certificateSigning) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !isSigningRequest(a, "status") {
		return nil
	}
	old, ok := a.GetOldObject().(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return unexpectedObject(a, a.GetOldObject())
	}
	csr, ok := a.GetObject().(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return unexpectedObject(a, a.GetObject())
	}
	if slices.Equal(old.Status.Certificate, csr.Status.Certificate) && apiequality.Semantic.DeepEqual(old.Status.Conditions, csr.Status.Conditions) {
		return nil
	}
	if signer := old.Spec.SignerName; !root.MayUseSigner(ctx, p.Authorizer, a.GetUserInfo(), "sign", signer) {
		return admission.NewForbidden(a, fmt.Errorf("user not permitted to sign requests with signerName %q", signer))
	}
	return nil
}

func (certificateSubjectRestriction) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !isSigningRequest(a, "") {
		return nil
	}
	csr, ok := a.GetObject().(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return unexpectedObject(a, a.GetObject())
	}
	if csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return nil
	}
	request, err := parseCertificateRequest(csr.Spec.Request)
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("failed to parse CSR: %w", err))
	}
	if slices.Contains(request.Subject.Organization, user.SystemPrivilegedGroup) {
		return admission.NewForbidden(a, fmt.Errorf("use of %s signer with %s group is not allowed",
			certificatesv1.KubeAPIServerClientSignerName, user.SystemPrivilegedGroup))
	}
	return nil
}

func isSigningRequest(a admission.Attributes, subresource string) bool {
	return a.GetResource().GroupResource() == certificatesv1.Resource("certificatesigningrequests") && a.GetSubresource() == subresource
}

func unexpectedObject(a admission.Attributes, obj any) error {
	return admission.NewForbidden(a, fmt.Errorf("expected type CertificateSigningRequest, got: %T", obj))
}

func parseCertificateRequest(data []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

// clusterTrustBundleAttest requires the verb "attest" on the signer for writing a bundle of its trust anchors.
type clusterTrustBundleAttest struct {
	Authorizer authorizer.UnconditionalAuthorizer
}

var _ admission.ValidationInterface = clusterTrustBundleAttest{}

func (clusterTrustBundleAttest) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Update
}

func (p clusterTrustBundleAttest) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	bundle, ok := a.GetObject().(*certificatesv1.ClusterTrustBundle)
	if !ok || bundle.Spec.SignerName == "" || keepsSigner(bundle, a.GetOldObject()) {
		return nil
	}
	if signer := bundle.Spec.SignerName; !root.MayUseSigner(ctx, p.Authorizer, a.GetUserInfo(), "attest", signer) {
		return admission.NewForbidden(a, fmt.Errorf("user not permitted to attest for signerName %q", signer))
	}
	return nil
}

// keepsSigner reports whether an update changes only metadata that the garbage collector writes. It returns false for a change
// of labels, because pods select bundles by label.
func keepsSigner(bundle *certificatesv1.ClusterTrustBundle, old any) bool {
	before, replaces := old.(*certificatesv1.ClusterTrustBundle)
	if !replaces {
		return false
	}
	same := bundle.DeepCopy()
	same.OwnerReferences, same.Finalizers, same.ManagedFields = before.OwnerReferences, before.Finalizers, before.ManagedFields
	return apiequality.Semantic.DeepEqual(same, before)
}
