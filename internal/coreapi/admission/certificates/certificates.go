// Package certificates is the admission plugins CertificateApproval, CertificateSigning, CertificateSubjectRestriction and
// ClusterTrustBundleAttest.
//
// The right to write to certificatesigningrequests/approval or /status is one for all signers. What each signer's
// certificates are worth differs, so these plugins ask for the right to approve or sign in the name of the signer too.
package certificates

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Approval asks for the verb "approve" on the signer of whoever approves or denies.
type Approval struct {
	Authorizer authorizer.UnconditionalAuthorizer
}

// Signing asks for the verb "sign" on the signer of whoever writes a certificate or a condition.
type Signing struct {
	Authorizer authorizer.UnconditionalAuthorizer
}

// Subjects refuses requests for client certificates of this server in the group that may everything.
type Subjects struct{}

var (
	_ admission.ValidationInterface = Approval{}
	_ admission.ValidationInterface = Signing{}
	_ admission.ValidationInterface = Subjects{}
)

func (Approval) Handles(operation admission.Operation) bool { return operation == admission.Update }
func (Signing) Handles(operation admission.Operation) bool  { return operation == admission.Update }
func (Subjects) Handles(operation admission.Operation) bool { return operation == admission.Create }

func (p Approval) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !isRequest(a, "approval") {
		return nil
	}
	// The old object: the signer cannot be changed by the way.
	old, ok := a.GetOldObject().(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return unexpected(a, a.GetOldObject())
	}
	if signer := old.Spec.SignerName; !MayFor(ctx, p.Authorizer, a.GetUserInfo(), "approve", signer) {
		return admission.NewForbidden(a, fmt.Errorf("user not permitted to approve requests with signerName %q", signer))
	}
	return nil
}

func (p Signing) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !isRequest(a, "status") {
		return nil
	}
	old, ok := a.GetOldObject().(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return unexpected(a, a.GetOldObject())
	}
	csr, ok := a.GetObject().(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return unexpected(a, a.GetObject())
	}
	if slices.Equal(old.Status.Certificate, csr.Status.Certificate) && apiequality.Semantic.DeepEqual(old.Status.Conditions, csr.Status.Conditions) {
		return nil
	}
	if signer := old.Spec.SignerName; !MayFor(ctx, p.Authorizer, a.GetUserInfo(), "sign", signer) {
		return admission.NewForbidden(a, fmt.Errorf("user not permitted to sign requests with signerName %q", signer))
	}
	return nil
}

func (Subjects) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !isRequest(a, "") {
		return nil
	}
	csr, ok := a.GetObject().(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return unexpected(a, a.GetObject())
	}
	if csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return nil
	}
	request, err := parse(csr.Spec.Request)
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("failed to parse CSR: %w", err))
	}
	if slices.Contains(request.Subject.Organization, user.SystemPrivilegedGroup) {
		return admission.NewForbidden(a, fmt.Errorf("use of %s signer with %s group is not allowed",
			certificatesv1.KubeAPIServerClientSignerName, user.SystemPrivilegedGroup))
	}
	return nil
}

func isRequest(a admission.Attributes, subresource string) bool {
	return a.GetResource().GroupResource() == certificatesv1.Resource("certificatesigningrequests") && a.GetSubresource() == subresource
}

func unexpected(a admission.Attributes, obj any) error {
	return admission.NewForbidden(a, fmt.Errorf("expected type CertificateSigningRequest, got: %T", obj))
}

// MayFor asks about the resource "signers", which nobody serves: for the signer by name, then for all of its domain.
func MayFor(ctx context.Context, a authorizer.UnconditionalAuthorizer, u user.Info, verb, signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		decision, _, err := a.Authorize(ctx, authorizer.AttributesRecord{
			User: u, Verb: verb, Name: name, ResourceRequest: true,
			APIGroup: certificatesv1.GroupName, APIVersion: "*", Resource: "signers",
		})
		if err == nil && decision == authorizer.DecisionAllow {
			return true
		}
	}
	return false
}

func parse(data []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}
