package validate

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A request is checked as it comes, and once more at each door through which it changes: the approval door adds
// conditions, the status door the certificate, and neither may do the other's work. Otherwise the right to sign would be
// the right to approve.

// legacySigner was given to requests of the beta API that named no signer.
const legacySigner = "kubernetes.io/legacy-unknown"

// minCertificateSeconds is the shortest life that may be asked for.
const minCertificateSeconds = 600

func ValidateCertificateSigningRequest(r *certificatesv1.CertificateSigningRequest) field.ErrorList {
	return certificateRules(r, certificateDoor{})
}

// certificateDoor is what a write may change, and which faults of an older object it may leave as they are.
type certificateDoor struct {
	approval, certificate bool
	stored                *certificatesv1.CertificateSigningRequest
}

func anyName(string, bool) []string { return nil }

func certificateRules(r *certificatesv1.CertificateSigningRequest, door certificateDoor) field.ErrorList {
	errs := objectMeta(&r.ObjectMeta, clusterScoped, anyName)
	spec, old := field.NewPath("spec"), door.stored
	if err := certificateRequestPEM(r.Spec.Request); err != nil {
		errs = append(errs, field.Invalid(spec.Child("request"), r.Spec.Request, err.Error()))
	}
	errs = append(errs, certificateUsages(r, old, spec.Child("usages"))...)
	if r.Spec.SignerName == legacySigner && (old == nil || old.Spec.SignerName != legacySigner) {
		errs = append(errs, field.Invalid(spec.Child("signerName"), r.Spec.SignerName,
			"the legacy signerName is not allowed via this API version"))
	} else {
		errs = append(errs, signerName(r.Spec.SignerName, spec.Child("signerName"))...)
	}
	if seconds := r.Spec.ExpirationSeconds; seconds != nil && *seconds < minCertificateSeconds {
		errs = append(errs, field.Invalid(spec.Child("expirationSeconds"), *seconds,
			"may not specify a duration less than 600 seconds (10 minutes)"))
	}
	errs = append(errs, certificateConditions(r, old, field.NewPath("status", "conditions"))...)
	untouched := old != nil && bytes.Equal(r.Status.Certificate, old.Status.Certificate)
	lenient := old != nil && certificatePEM(old.Status.Certificate) != nil
	if err := certificatePEM(r.Status.Certificate); err != nil && !untouched && !lenient {
		errs = append(errs, field.Invalid(field.NewPath("status", "certificate"), "<certificate data>", err.Error()))
	}
	return errs
}

// certificateRequestPEM wants a request that is signed by the key that it asks a certificate for.
func certificateRequestPEM(data []byte) error {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err
	}
	return request.CheckSignature()
}

// certificatePEM wants nothing but certificates: whoever reads the status installs what it holds.
func certificatePEM(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	blocks := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		blocks++
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		}
		if len(block.Headers) > 0 {
			return errors.New("no PEM block headers are permitted")
		}
		certificates, err := x509.ParseCertificates(block.Bytes)
		if err != nil {
			return err
		}
		if len(certificates) == 0 {
			return errors.New("found CERTIFICATE PEM block containing 0 certificates")
		}
	}
	if blocks == 0 {
		return errors.New("must contain at least one CERTIFICATE PEM block")
	}
	return nil
}

var certificateUsageNames = []certificatesv1.KeyUsage{
	certificatesv1.UsageAny, certificatesv1.UsageCRLSign, certificatesv1.UsageCertSign, certificatesv1.UsageClientAuth,
	certificatesv1.UsageCodeSigning, certificatesv1.UsageContentCommitment, certificatesv1.UsageDataEncipherment,
	certificatesv1.UsageDecipherOnly, certificatesv1.UsageDigitalSignature, certificatesv1.UsageEmailProtection,
	certificatesv1.UsageEncipherOnly, certificatesv1.UsageIPsecEndSystem, certificatesv1.UsageIPsecTunnel,
	certificatesv1.UsageIPsecUser, certificatesv1.UsageKeyAgreement, certificatesv1.UsageKeyEncipherment,
	certificatesv1.UsageMicrosoftSGC, certificatesv1.UsageNetscapeSGC, certificatesv1.UsageOCSPSigning,
	certificatesv1.UsageSMIME, certificatesv1.UsageServerAuth, certificatesv1.UsageSigning, certificatesv1.UsageTimestamping,
}

func certificateUsages(r, old *certificatesv1.CertificateSigningRequest, path *field.Path) field.ErrorList {
	if len(r.Spec.Usages) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	if old != nil {
		return nil // the spec has not changed
	}
	var errs field.ErrorList
	for i, usage := range r.Spec.Usages {
		errs = append(errs, oneOf(usage, path.Index(i), certificateUsageNames...)...)
		if slices.Contains(r.Spec.Usages[:i], usage) {
			errs = append(errs, field.Duplicate(path.Index(i), usage))
		}
	}
	return errs
}

// signerName has the form example.com/name; a name may be one of a namespace's object, as namespace.name.
func signerName(name string, path *field.Path) field.ErrorList {
	const maxDomain, maxPath = utilvalidation.DNS1123SubdomainMaxLength,
		utilvalidation.DNS1123SubdomainMaxLength + utilvalidation.DNS1123LabelMaxLength + 1
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	domain, rest, found := strings.Cut(name, "/")
	if !found || strings.Contains(rest, "/") {
		return field.ErrorList{field.Invalid(path, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")}
	}
	var errs field.ErrorList
	if len(domain) > maxDomain {
		errs = append(errs, field.TooLong(path, "", maxDomain))
	}
	errs = append(errs, signerPart(domain, path, utilvalidation.IsDNS1123Label)...)
	if !strings.Contains(domain, ".") {
		errs = append(errs, field.Invalid(path, domain, "should be a domain with at least two segments separated by dots"))
	}
	errs = append(errs, signerPart(rest, path, utilvalidation.IsDNS1123Subdomain)...)
	if most := maxDomain + maxPath + 1; len(name) > most {
		errs = append(errs, field.TooLong(path, "", most))
	}
	return errs
}

// signerPart reports the first label that is wrong.
func signerPart(part string, path *field.Path, check func(string) []string) field.ErrorList {
	for label := range strings.SplitSeq(part, ".") {
		var errs field.ErrorList
		for _, message := range check(label) {
			errs = append(errs, field.Invalid(path, part, fmt.Sprintf("validating label %q: %s", label, message)))
		}
		if len(errs) > 0 {
			return errs
		}
	}
	return nil
}
