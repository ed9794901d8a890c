package certificates

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"portico.dev/internal/coreapi/admission"
	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/selectable"
	"portico.dev/internal/coreapi/validate"
)

func podCertificateRequestStorages(_ *registry.Environment, main *registry.REST) map[string]rest.Storage {
	return map[string]rest.Storage{
		"podcertificaterequests/status": main.Subresource(podCertificateStatus{registry.StatusStrategy{Strategy: main.Strategy}}),
	}
}

// podCertificateStatus is the subresource for signers. Permission to write the status covers every signer, so a write also
// requires permission to sign for the signer of the request. This is not an admission plugin, because a plugin could be
// disabled.
type podCertificateStatus struct {
	registry.StatusStrategy
}

func (s podCertificateStatus) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	if errs := s.StatusStrategy.ValidateUpdate(ctx, obj, old); len(errs) > 0 {
		return errs
	}
	request, before := obj.(*certificatesv1.PodCertificateRequest), old.(*certificatesv1.PodCertificateRequest)
	if apiequality.Semantic.DeepEqual(request.Status, before.Status) {
		return nil
	}
	path, signer := field.NewPath("spec", "signerName"), before.Spec.SignerName
	user, known := apirequest.UserFrom(ctx)
	if !known {
		return field.ErrorList{field.InternalError(path, errors.New("there is no user whose right to sign could be checked"))}
	}
	if !admission.MayUseSigner(ctx, s.Environment.Authorizer, user, "sign", signer) {
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("User %q is not permitted to \"sign\" for signer %q", user.GetName(), signer))}
	}
	return nil
}

func podCertificateRequestResource() registry.Resource {
	return registry.Resource{
		Name: "podcertificaterequests", Singular: "podcertificaterequest",
		Object: &certificatesv1.PodCertificateRequest{}, List: &certificatesv1.PodCertificateRequestList{},
		Samples: []string{
			"metadata: {name: a, namespace: ns}\n" +
				"spec: {signerName: example.com/a, podName: a, podUID: a, serviceAccountName: a, serviceAccountUID: a, " +
				"nodeName: a, nodeUID: a, stubPKCS10Request: " + sampleProofOfKey + "}",
		},
		Rules:    validate.WithStatus(validatePodCertificateRequest, validatePodCertificateRequestUpdate, validatePodCertificateRequestStatus),
		Defaults: defaults.Of(defaultPodCertificateRequest),
		Columns:  podCertificateRequestColumns,
		Storages: podCertificateRequestStorages,
		Fields:   podCertificateRequestFields(),
		Spec: registry.SpecOf(func(o *certificatesv1.PodCertificateRequest) *certificatesv1.PodCertificateRequestSpec {
			return &o.Spec
		}),
		Status: registry.StatusOf(func(o *certificatesv1.PodCertificateRequest) *certificatesv1.PodCertificateRequestStatus {
			return &o.Status
		}),
	}
}

func podCertificateRequestColumns() columns.Printer {
	doc := certificatesv1.PodCertificateRequestSpec{}.SwaggerDoc()
	return columns.Show(func(r *certificatesv1.PodCertificateRequest, _ time.Time) []any {
		state := "Pending"
		for _, c := range r.Status.Conditions {
			state = c.Type
		}
		return []any{r.Name, r.Spec.PodName, r.Spec.ServiceAccountName, string(r.Spec.NodeName), r.Spec.SignerName, state,
			labels.FormatLabels(r.Spec.UnverifiedUserAnnotations)}
	}, columns.Name(), columns.Text("PodName", doc["podName"]), columns.Text("ServiceAccountName", doc["serviceAccountName"]), columns.Text("NodeName", doc["nodeName"]),
		columns.Text("SignerName", doc["signerName"]), columns.Text("State", "Is the request Pending, Issued, Denied, or Failed?"),
		columns.Wide(columns.Text("UnverifiedUserAnnotations", doc["unverifiedUserAnnotations"])))
}

// defaultPodCertificateRequest sets the maximum lifetime to a day.
func defaultPodCertificateRequest(r *certificatesv1.PodCertificateRequest) {
	defaults.Point(&r.Spec.MaxExpirationSeconds, 24*3600)
}

func podCertificateRequestFields() *selectable.Fields {
	return selectable.Of(selectable.InNamespace("spec.signerName", "spec.podName", "spec.nodeName"), func(set fields.Set, o *certificatesv1.PodCertificateRequest) {
		set["spec.signerName"], set["spec.podName"], set["spec.nodeName"] = o.Spec.SignerName, o.Spec.PodName, string(o.Spec.NodeName)
	})
}

// Limits for requests that kubelets create for pods.
const (
	minPodCertificateSeconds     = 3600
	maxPodCertificateSeconds     = 91 * 24 * 3600
	maxOwnPodCertificateSeconds  = 24 * 3600 // for signers of kubernetes.io
	maxPodCertificateCSRBytes    = 10 << 10
	maxPodCertificateChainBytes  = 100 << 10
	maxPodCertificateUIDBytes    = 128
	signersOfKubernetes          = "kubernetes.io"
	podCertificateStubField      = "stubPKCS10Request"
	maxPodCertificateAnnotations = validation.TotalAnnotationSizeLimitB
)

func validatePodCertificateRequest(r *certificatesv1.PodCertificateRequest) field.ErrorList {
	errs := validate.ObjectMeta(&r.ObjectMeta, validate.Namespaced, validation.NameIsDNSSubdomain)
	spec := field.NewPath("spec")
	errs = append(errs, validate.SignerName(r.Spec.SignerName, spec.Child("signerName"))...)
	errs = append(errs, userAnnotations(r.Spec.UnverifiedUserAnnotations, spec.Child("unverifiedUserAnnotations"))...)
	errs = append(errs, validate.Invalid(spec.Child("podName"), r.Spec.PodName, validation.NameIsDNSSubdomain(r.Spec.PodName, false))...)
	errs = append(errs, identity(string(r.Spec.PodUID), spec.Child("podUID"))...)
	errs = append(errs, validate.Invalid(spec.Child("serviceAccountName"), r.Spec.ServiceAccountName, validation.ValidateServiceAccountName(r.Spec.ServiceAccountName, false))...)
	errs = append(errs, identity(string(r.Spec.ServiceAccountUID), spec.Child("serviceAccountUID"))...)
	errs = append(errs, validate.Invalid(spec.Child("nodeName"), r.Spec.NodeName, validation.NameIsDNSSubdomain(string(r.Spec.NodeName), false))...)
	errs = append(errs, identity(string(r.Spec.NodeUID), spec.Child("nodeUID"))...)
	seconds, path := r.Spec.MaxExpirationSeconds, spec.Child("maxExpirationSeconds")
	if seconds == nil {
		return append(errs, field.Required(path, "must be set"))
	}
	most := int32(maxPodCertificateSeconds)
	if domain, _, _ := strings.Cut(r.Spec.SignerName, "/"); domain == signersOfKubernetes || strings.HasSuffix(domain, "."+signersOfKubernetes) {
		most = maxOwnPodCertificateSeconds
	}
	if *seconds < minPodCertificateSeconds || *seconds > most {
		errs = append(errs, field.Invalid(path, *seconds, fmt.Sprintf("must be in the range [%d, %d]", minPodCertificateSeconds, most)))
	}
	if len(r.Spec.StubPKCS10Request) == 0 {
		return append(errs, field.Required(spec.Child(podCertificateStubField), "must be set"))
	}
	return append(errs, stubRequest(r.Spec.StubPKCS10Request, spec.Child(podCertificateStubField))...)
}

func identity(uid string, path *field.Path) field.ErrorList {
	switch {
	case uid == "":
		return field.ErrorList{field.Invalid(path, uid, "must not be empty")}
	case len(uid) > maxPodCertificateUIDBytes:
		return field.ErrorList{field.TooLong(path, uid, maxPodCertificateUIDBytes)}
	}
	return nil
}

// userAnnotations checks annotations for a signer. The domain of each key identifies the signer.
func userAnnotations(annotations map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for key := range annotations {
		errs = append(errs, utilvalidation.IsDomainPrefixedKey(path, strings.ToLower(key))...)
	}
	if validation.ValidateAnnotationsSize(annotations) != nil {
		errs = append(errs, field.TooLong(path, "", maxPodCertificateAnnotations))
	}
	return errs
}

// stubRequest checks that the kubelet has the private key. Other contents of the request are ignored.
func stubRequest(der []byte, path *field.Path) field.ErrorList {
	wrong := func(value any, why string) field.ErrorList {
		return field.ErrorList{field.Invalid(path, value, why)}
	}
	if len(der) > maxPodCertificateCSRBytes {
		return field.ErrorList{field.TooLong(path, der, maxPodCertificateCSRBytes)}
	}
	request, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return wrong(field.OmitValueType{}, "must be a valid PKCS#10 CSR")
	}
	switch key := request.PublicKey.(type) {
	case ed25519.PublicKey:
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() && key.Curve != elliptic.P384() && key.Curve != elliptic.P521() {
			return wrong("curve "+key.Curve.Params().Name, "elliptic public keys must use curve P256, P384, or P521")
		}
	case *rsa.PublicKey:
		if bits := key.Size() * 8; bits != 3072 && bits != 4096 {
			return wrong(fmt.Sprintf("%d-bit modulus", bits), "RSA keys must have modulus size 3072 or 4096")
		}
	default:
		return wrong(field.OmitValueType{}, "unknown public key type; supported types are Ed25519, ECDSA, and RSA")
	}
	if request.CheckSignature() != nil {
		return wrong(field.OmitValueType{}, "invalid signature")
	}
	return nil
}

func validatePodCertificateRequestUpdate(r, old *certificatesv1.PodCertificateRequest) field.ErrorList {
	return append(validation.ValidateObjectMetaUpdate(&r.ObjectMeta, &old.ObjectMeta, field.NewPath("metadata")),
		validate.Immutable(r.Spec, old.Spec, field.NewPath("spec"))...)
}

// A pod certificate request is decided once: issued, denied or failed. Kubelets trust the certificate in the status, so it must
// match the request.

var podCertificateEnds = []string{certificatesv1.PodCertificateRequestConditionTypeIssued,
	certificatesv1.PodCertificateRequestConditionTypeDenied, certificatesv1.PodCertificateRequestConditionTypeFailed}

// clockTolerance is the maximum distance between now and the start of a certificate's validity.
const clockTolerance = 5 * time.Minute

func validatePodCertificateRequestStatus(r, old *certificatesv1.PodCertificateRequest) field.ErrorList {
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

// podCertificateEnd returns the final condition of a request, or "" if it is pending.
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
		if errs = append(errs, validate.OneOf(c.Type, path.Index(i).Child("type"), podCertificateEnds...)...); !slices.Contains(podCertificateEnds, c.Type) {
			continue
		}
		if ends++; ends > 1 {
			errs = append(errs, field.Invalid(path.Index(i).Child("type"), c.Type,
				`There may be at most one condition with type "Issued", "Denied", or "Failed"`))
		}
		errs = append(errs, validate.OneOf(c.Status, path.Index(i).Child("status"), metav1.ConditionTrue)...)
	}
	return append(errs, metav1validation.ValidateConditions(conditions, path)...)
}

// issued checks the chain, its leaf against the request, and the dates against both.
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

// namesOf refuses names that verifiers interpret differently.
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

// dates checks that the dates in the status, for clients that do not parse certificates, match the certificate.
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

// sampleProofOfKey is a certificate request that only proves possession of the key, in base64.
const sampleProofOfKey = "" +
	"MIG7MGICAQAwADBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABAwE2DgNaUeVG2I/OS0g7KQ9BR8uogEVP71eKvZ1Ur2dZJ8Sb/qrUEza" +
	"dpp7znNKN1MsrTwWbywrU2t6dGNW0r2gADAKBggqhkjOPQQDAgNJADBGAiEA0JZqbmtGlpUOmXalzN2FWEf8GooPCxAjKIKL6rrofT8C" +
	"IQD1sh8U36oYiSvXol7Q07KT0dHiP0KjLRz3MxiilrlGoA=="
