package validate

import (
	"bytes"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// finalConditions are never taken back.
var finalConditions = []certificatesv1.RequestConditionType{
	certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed,
}

func certificateConditions(r, old *certificatesv1.CertificateSigningRequest, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	both := old != nil && decided(old, certificatesv1.CertificateApproved) && decided(old, certificatesv1.CertificateDenied)
	seen := sets.New[certificatesv1.RequestConditionType]()
	for i, c := range r.Status.Conditions {
		at := path.Index(i)
		if c.Type == "" && !decided(old, "") {
			errs = append(errs, field.Required(at.Child("type"), ""))
		}
		allowed := []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown}
		if slices.Contains(finalConditions, c.Type) {
			allowed = []corev1.ConditionStatus{corev1.ConditionTrue}
		}
		errs = append(errs, required(c.Status, at.Child("status"), allowed...)...)
		if seen.Has(c.Type) && !repeats(old) {
			errs = append(errs, field.Duplicate(at.Child("type"), c.Type))
		}
		seen.Insert(c.Type)
		decides := c.Type == certificatesv1.CertificateApproved || c.Type == certificatesv1.CertificateDenied
		if decides && !both && seen.HasAll(certificatesv1.CertificateApproved, certificatesv1.CertificateDenied) {
			errs = append(errs, field.Invalid(path, c.Type, "Approved and Denied conditions are mutually exclusive"))
		}
	}
	return errs
}

func conditionsOf(r *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) []certificatesv1.CertificateSigningRequestCondition {
	var found []certificatesv1.CertificateSigningRequestCondition
	if r == nil {
		return nil
	}
	for _, c := range r.Status.Conditions {
		if c.Type == kind {
			found = append(found, c)
		}
	}
	return found
}

func decided(r *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) bool {
	return len(conditionsOf(r, kind)) > 0
}

func repeats(r *certificatesv1.CertificateSigningRequest) bool {
	if r == nil {
		return false
	}
	for _, c := range r.Status.Conditions {
		if len(conditionsOf(r, c.Type)) > 1 {
			return true
		}
	}
	return false
}

func ValidateCertificateSigningRequestUpdate(r, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	return certificateChange(r, certificateDoor{stored: old})
}

func ValidateCertificateSigningRequestStatus(r, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	return certificateChange(r, certificateDoor{stored: old, certificate: true})
}

// CertificateApproval returns what is wrong with a request whose conditions are to replace those of old, by the door
// that approves and denies.
func CertificateApproval(r, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	return append(metaUpdate(r, old), certificateChange(r, certificateDoor{stored: old, approval: true})...)
}

func certificateChange(r *certificatesv1.CertificateSigningRequest, door certificateDoor) field.ErrorList {
	errs := certificateRules(r, door)
	conditions := field.NewPath("status", "conditions")
	for _, kind := range finalConditions {
		before, now := conditionsOf(door.stored, kind), conditionsOf(r, kind)
		guarded := !door.approval && kind != certificatesv1.CertificateFailed
		switch {
		case len(now) < len(before):
			errs = append(errs, field.Forbidden(conditions, fmt.Sprintf("updates may not remove a condition of type %q", kind)))
		case guarded && len(now) > len(before):
			errs = append(errs, field.Forbidden(conditions, fmt.Sprintf("updates may not add a condition of type %q", kind)))
		case guarded && !apiequality.Semantic.DeepEqual(before, now):
			errs = append(errs, field.Forbidden(conditions,
				fmt.Sprintf("updates may not modify a condition of type %q\n%v", kind, diff.Diff(before, now))))
		}
	}
	if bytes.Equal(r.Status.Certificate, door.stored.Status.Certificate) {
		return errs
	}
	certificate := field.NewPath("status", "certificate")
	switch {
	case !door.certificate:
		errs = append(errs, field.Forbidden(certificate, "updates may not set certificate content"))
	case len(door.stored.Status.Certificate) > 0:
		errs = append(errs, field.Forbidden(certificate, "updates may not modify existing certificate content"))
	}
	return errs
}
