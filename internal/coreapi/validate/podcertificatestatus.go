package validate

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A request for a pod's certificate is decided once: issued, denied or failed. Kubelets believe the certificate that they
// read here, so it has to be what the request asked for.

var podCertificateEnds = []string{certificatesv1.PodCertificateRequestConditionTypeIssued,
	certificatesv1.PodCertificateRequestConditionTypeDenied, certificatesv1.PodCertificateRequestConditionTypeFailed}

// clockTolerance is how far a certificate may begin from now.
const clockTolerance = 5 * time.Minute

func ValidatePodCertificateRequestStatus(r, old *certificatesv1.PodCertificateRequest) field.ErrorList {
	status := field.NewPath("status")
	if errs := podCertificateConditions(r.Status.Conditions, status.Child("conditions")); len(errs) > 0 {
		return errs
	}
	only := func(want certificatesv1.PodCertificateRequestStatus, why string) field.ErrorList {
		if apiequality.Semantic.DeepEqual(r.Status, want) {
			return nil
		}
		return field.ErrorList{field.Invalid(status, field.OmitValueType{}, why)}
	}
	switch end := podCertificateEnd(r); {
	case podCertificateEnd(old) != "":
		return only(old.Status, "immutable after PodCertificateRequest is issued, denied, or failed")
	case end == certificatesv1.PodCertificateRequestConditionTypeIssued:
		return issued(r, old, status)
	case end != "":
		return only(certificatesv1.PodCertificateRequestStatus{Conditions: r.Status.Conditions},
			"non-condition status fields must be empty when denying or failing the PodCertificateRequest")
	}
	return only(old.Status, `status is immutable unless transitioning to "Issued", "Denied", or "Failed"`)
}

// podCertificateEnd is how a request has ended; empty: it has not.
func podCertificateEnd(r *certificatesv1.PodCertificateRequest) string {
	for _, c := range r.Status.Conditions {
		if c.Status == metav1.ConditionTrue && slices.Contains(podCertificateEnds, c.Type) {
			return c.Type
		}
	}
	return ""
}

func podCertificateConditions(conditions []metav1.Condition, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	ends := 0
	for i, c := range conditions {
		if errs = append(errs, oneOf(c.Type, path.Index(i).Child("type"), podCertificateEnds...)...); !slices.Contains(podCertificateEnds, c.Type) {
			continue
		}
		if ends++; ends > 1 {
			errs = append(errs, field.Invalid(path.Index(i).Child("type"), c.Type,
				`There may be at most one condition with type "Issued", "Denied", or "Failed"`))
		}
		errs = append(errs, oneOf(c.Status, path.Index(i).Child("status"), metav1.ConditionTrue)...)
	}
	return append(errs, metav1validation.ValidateConditions(conditions, path)...)
}

// issued checks the chain, its first certificate against the request, and the dates against both.
func issued(r, old *certificatesv1.PodCertificateRequest, status *field.Path) field.ErrorList {
	path := status.Child("certificateChain")
	leaf, errs := podCertificateChain(r.Status.CertificateChain, path)
	if len(errs) > 0 {
		return errs
	}
	request, err := x509.ParseCertificateRequest(old.Spec.StubPKCS10Request)
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec", podCertificateStubField), field.OmitValueType{}, "must be a valid PKCS#10 CSR")}
	}
	if wanted, ok := request.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok || !wanted.Equal(leaf.PublicKey) {
		return field.ErrorList{field.Invalid(path, r.Status.CertificateChain, "leaf certificate was not issued to the requested public key")}
	}
	if errs := dates(&r.Status, leaf, status); len(errs) > 0 {
		return errs
	}
	lifetime, most := leaf.NotAfter.Sub(leaf.NotBefore), r.Spec.MaxExpirationSeconds
	switch {
	case lifetime < time.Hour:
		return field.ErrorList{field.Invalid(path, lifetime, "leaf certificate lifetime must be >= 1 hour")}
	case most != nil && lifetime > time.Duration(*most)*time.Second:
		return field.ErrorList{field.Invalid(path, lifetime, fmt.Sprintf("leaf certificate lifetime must be <= spec.maxExpirationSeconds (%v)", *most))}
	}
	return nil
}

func podCertificateChain(text string, path *field.Path) (*x509.Certificate, field.ErrorList) {
	if len(text) > maxPodCertificateChainBytes {
		return nil, field.ErrorList{field.TooLong(path, text, maxPodCertificateChainBytes)}
	}
	var leaf *x509.Certificate
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, field.ErrorList{field.Invalid(path, text, "issued certificate chain must consist entirely of CERTIFICATE PEM blocks")}
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		switch {
		case err != nil && leaf == nil:
			return nil, field.ErrorList{field.Invalid(path, text, "leaf certificate does not parse as valid X.509")}
		case err != nil:
			return nil, field.ErrorList{field.Invalid(path, text, "intermediate certificate does not parse as valid X.509")}
		case leaf == nil:
			leaf = certificate
		}
	}
	if leaf == nil {
		return nil, field.ErrorList{field.Invalid(path, text, "issued certificate chain must contain at least one certificate")}
	}
	return leaf, namesOf(leaf, path)
}

// namesOf refuses names that readers of the certificate understand differently.
func namesOf(leaf *x509.Certificate, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range leaf.DNSNames {
		if name == "" {
			errs = append(errs, field.Invalid(path, name, "leaf certificate should not contain empty DNSName"))
		}
		if strings.Contains(name, "..") {
			errs = append(errs, field.Invalid(path, name, "leaf certificate's DNSName should not contain '..'"))
		}
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") {
			errs = append(errs, field.Invalid(path, name, "leaf certificate's DNSName should not start or end with '.'"))
		}
	}
	for _, address := range leaf.EmailAddresses {
		if _, err := mail.ParseAddress(address); err != nil {
			errs = append(errs, field.Invalid(path, address, "leaf certificate should not contain invalid EmailAddress"))
		}
	}
	return errs
}

// dates of the status are there for those who cannot read certificates, and have to be the certificate's.
func dates(s *certificatesv1.PodCertificateRequestStatus, leaf *x509.Certificate, status *field.Path) field.ErrorList {
	begin, end, refresh := status.Child("notBefore"), status.Child("notAfter"), status.Child("beginRefreshAt")
	var errs field.ErrorList
	if s.NotBefore == nil {
		errs = append(errs, field.Required(begin, "must be present and consistent with the issued certificate"))
	}
	if s.NotAfter == nil {
		errs = append(errs, field.Required(end, "must be present and consistent with the issued certificate"))
	}
	if s.BeginRefreshAt == nil {
		errs = append(errs, field.Required(refresh, "must be present and in the range [notbefore+10min, notafter-10min]"))
	}
	if len(errs) > 0 {
		return errs
	}
	switch {
	case !s.NotBefore.Time.Equal(leaf.NotBefore):
		return field.ErrorList{field.Invalid(begin, s.NotBefore.Time, "must be set to the NotBefore time encoded in the leaf certificate")}
	case time.Since(leaf.NotBefore).Abs() > clockTolerance:
		return field.ErrorList{field.Invalid(begin, s.NotBefore.Time, "must be set to within 5 minutes of kube-apiserver's current time")}
	case !s.NotAfter.Time.Equal(leaf.NotAfter):
		return field.ErrorList{field.Invalid(end, s.NotAfter.Time, "must be set to the NotAfter time encoded in the leaf certificate")}
	case s.BeginRefreshAt.Time.Before(s.NotBefore.Add(10 * time.Minute)):
		return field.ErrorList{field.Invalid(refresh, s.BeginRefreshAt.Time, "must be at least 10 minutes after status.notBefore")}
	case s.BeginRefreshAt.Time.After(s.NotAfter.Add(-10 * time.Minute)):
		return field.ErrorList{field.Invalid(refresh, s.BeginRefreshAt.Time, "must be at least 10 minutes before status.notAfter")}
	}
	return nil
}
