package certificates

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Attesting asks for the verb "attest" on the signer of whoever says whom pods are to trust in the signer's name.
type Attesting struct {
	Authorizer authorizer.UnconditionalAuthorizer
}

var _ admission.ValidationInterface = Attesting{}

func (Attesting) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Update
}

func (p Attesting) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	bundle, ok := a.GetObject().(*certificatesv1.ClusterTrustBundle)
	if !ok || bundle.Spec.SignerName == "" || unlabelled(bundle, a.GetOldObject()) {
		return nil
	}
	if signer := bundle.Spec.SignerName; !MayFor(ctx, p.Authorizer, a.GetUserInfo(), "attest", signer) {
		return admission.NewForbidden(a, fmt.Errorf("user not permitted to attest for signerName %q", signer))
	}
	return nil
}

// unlabelled says that an update changes only what the garbage collector changes. Labels count: pods choose bundles by them.
func unlabelled(bundle *certificatesv1.ClusterTrustBundle, old any) bool {
	before, replaces := old.(*certificatesv1.ClusterTrustBundle)
	if !replaces {
		return false
	}
	same := bundle.DeepCopy()
	same.OwnerReferences, same.Finalizers, same.ManagedFields = before.OwnerReferences, before.Finalizers, before.ManagedFields
	return apiequality.Semantic.DeepEqual(same, before)
}
