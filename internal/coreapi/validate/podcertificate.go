package validate

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Bounds of what kubelets ask for in the name of pods.
const (
	minPodCertificateSeconds     = 3600
	maxPodCertificateSeconds     = 91 * 24 * 3600
	maxOwnPodCertificateSeconds  = 24 * 3600 // of signers of kubernetes.io
	maxPodCertificateCSRBytes    = 10 << 10
	maxPodCertificateChainBytes  = 100 << 10
	maxPodCertificateUIDBytes    = 128
	signersOfKubernetes          = "kubernetes.io"
	podCertificateStubField      = "stubPKCS10Request"
	maxPodCertificateAnnotations = validation.TotalAnnotationSizeLimitB
)

func ValidatePodCertificateRequest(r *certificatesv1.PodCertificateRequest) field.ErrorList {
	errs := objectMeta(&r.ObjectMeta, namespaced, validation.NameIsDNSSubdomain)
	spec := field.NewPath("spec")
	errs = append(errs, signerName(r.Spec.SignerName, spec.Child("signerName"))...)
	errs = append(errs, userAnnotations(r.Spec.UnverifiedUserAnnotations, spec.Child("unverifiedUserAnnotations"))...)
	errs = append(errs, invalid(spec.Child("podName"), r.Spec.PodName, validation.NameIsDNSSubdomain(r.Spec.PodName, false))...)
	errs = append(errs, identity(string(r.Spec.PodUID), spec.Child("podUID"))...)
	errs = append(errs, invalid(spec.Child("serviceAccountName"), r.Spec.ServiceAccountName, validation.ValidateServiceAccountName(r.Spec.ServiceAccountName, false))...)
	errs = append(errs, identity(string(r.Spec.ServiceAccountUID), spec.Child("serviceAccountUID"))...)
	errs = append(errs, invalid(spec.Child("nodeName"), r.Spec.NodeName, validation.NameIsDNSSubdomain(string(r.Spec.NodeName), false))...)
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

// userAnnotations are for a signer to read, and tell by their domain for which.
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

// stubRequest proves that the kubelet has the key. What else it says is nobody's business here.
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

func ValidatePodCertificateRequestUpdate(r, old *certificatesv1.PodCertificateRequest) field.ErrorList {
	return append(validation.ValidateObjectMetaUpdate(&r.ObjectMeta, &old.ObjectMeta, field.NewPath("metadata")),
		immutable(r.Spec, old.Spec, field.NewPath("spec"))...)
}
