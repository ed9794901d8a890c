package validate

import (
	"fmt"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// SignerName has the form example.com/name; a name may be one of a namespace's object, as namespace.name.
func SignerName(name string, path *field.Path) field.ErrorList {
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
