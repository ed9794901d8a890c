package coreapi

import (
	"context"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"portico.dev/internal/coreapi/validate"
)

// A signer hands out an identity for what a request says of its author. So who asked is taken from the request's
// authentication and never from the object, and neither who asked nor what for changes afterwards.

// stampRequester writes down who asks for a certificate.
func stampRequester(ctx context.Context, obj runtime.Object) {
	request := obj.(*certificatesv1.CertificateSigningRequest)
	spec := &request.Spec
	spec.Username, spec.UID, spec.Groups, spec.Extra = "", "", nil, nil
	if user, known := apirequest.UserFrom(ctx); known {
		spec.Username, spec.UID, spec.Groups = user.GetName(), user.GetUID(), user.GetGroups()
		for key, values := range user.GetExtra() {
			if spec.Extra == nil {
				spec.Extra = map[string]certificatesv1.ExtraValue{}
			}
			spec.Extra[key] = values
		}
	}
	request.Status = certificatesv1.CertificateSigningRequestStatus{}
}

// certificateDoors are where requests are decided, and where their certificates are put. They are two, so that approving
// and signing can be the rights of two parties.
func certificateDoors(scheme *runtime.Scheme, all *stored) map[string]rest.Storage {
	door := statusStrategy{newStrategy(scheme, all.of)}
	return map[string]rest.Storage{
		all.of.name + "/approval": newSubresource(all.Store, certificateApproval{door}),
		all.of.name + "/status":   newSubresource(all.Store, certificateStatus{door}),
	}
}

// certificateApproval changes the conditions and nothing else.
type certificateApproval struct{ statusStrategy }

func (s certificateApproval) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	request, before := obj.(*certificatesv1.CertificateSigningRequest), old.(*certificatesv1.CertificateSigningRequest)
	request.Spec = before.Spec
	request.Status.Certificate = before.Status.Certificate
	dateConditions(request, before)
}

func (s certificateApproval) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validate.CertificateApproval(obj.(*certificatesv1.CertificateSigningRequest), old.(*certificatesv1.CertificateSigningRequest))
}

func (s certificateApproval) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.resets(fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("status", "certificate"))
}

// certificateStatus changes the certificate, and adds the condition that signing has failed.
type certificateStatus struct{ statusStrategy }

func (s certificateStatus) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	request, before := obj.(*certificatesv1.CertificateSigningRequest), old.(*certificatesv1.CertificateSigningRequest)
	request.Spec = before.Spec
	// A signer that read the request some time ago sends its decision back slightly changed; what it adds or takes away
	// is refused by validation.
	keepConditions(request, before, certificatesv1.CertificateApproved)
	keepConditions(request, before, certificatesv1.CertificateDenied)
	dateConditions(request, before)
}

func (s certificateStatus) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.resets(fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("status", "conditions"))
}

// keepConditions restores the conditions of one type, if there are as many as before.
func keepConditions(request, before *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) {
	places := func(r *certificatesv1.CertificateSigningRequest) []*certificatesv1.CertificateSigningRequestCondition {
		var found []*certificatesv1.CertificateSigningRequestCondition
		for i := range r.Status.Conditions {
			if r.Status.Conditions[i].Type == kind {
				found = append(found, &r.Status.Conditions[i])
			}
		}
		return found
	}
	to, from := places(request), places(before)
	if len(to) != len(from) {
		return
	}
	for i := range to {
		*to[i] = *from[i]
	}
}

// dateConditions fills in when each condition was said, and since when it is so.
func dateConditions(request, before *certificatesv1.CertificateSigningRequest) {
	now := metav1.Now()
	for i := range request.Status.Conditions {
		c := &request.Status.Conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = now
		for _, old := range before.Status.Conditions {
			if old.Type == c.Type && old.Status == c.Status && !old.LastTransitionTime.IsZero() {
				c.LastTransitionTime = old.LastTransitionTime
				break
			}
		}
	}
}
