package validate

import (
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// maxIngressController is the longest name of an ingress controller.
const maxIngressController = 250

func ValidateIngressClass(c *networkingv1.IngressClass) field.ErrorList {
	errs := objectMeta(&c.ObjectMeta, clusterScoped, validation.NameIsDNSSubdomain)
	spec := field.NewPath("spec")
	if len(c.Spec.Controller) > maxIngressController {
		errs = append(errs, field.TooLong(spec.Child("controller"), "", maxIngressController))
	}
	errs = append(errs, utilvalidation.IsDomainPrefixedPath(spec.Child("controller"), c.Spec.Controller)...)
	return append(errs, ingressParameters(c.Spec.Parameters, spec.Child("parameters"))...)
}

func ValidateIngressClassUpdate(c, old *networkingv1.IngressClass) field.ErrorList {
	errs := immutable(c.Spec.Controller, old.Spec.Controller, field.NewPath("spec", "controller"))
	return append(errs, ValidateIngressClass(c)...)
}

func ingressParameters(p *networkingv1.IngressClassParametersReference, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := localReference(p.APIGroup, p.Kind, p.Name, path)
	if p.Scope == nil {
		return append(errs, field.Required(path.Child("scope"), ""))
	}
	errs = append(errs, oneOf(*p.Scope, path.Child("scope"), networkingv1.IngressClassParametersReferenceScopeCluster,
		networkingv1.IngressClassParametersReferenceScopeNamespace)...)
	at := path.Child("namespace")
	switch {
	case *p.Scope == networkingv1.IngressClassParametersReferenceScopeNamespace && p.Namespace == nil:
		errs = append(errs, field.Required(at, "`parameters.scope` is set to 'Namespace'"))
	case *p.Scope == networkingv1.IngressClassParametersReferenceScopeNamespace:
		errs = append(errs, invalid(at, *p.Namespace, validation.ValidateNamespaceName(*p.Namespace, false))...)
	case *p.Scope == networkingv1.IngressClassParametersReferenceScopeCluster && p.Namespace != nil:
		errs = append(errs, field.Forbidden(at, "`parameters.scope` is set to 'Cluster'"))
	}
	return errs
}

// localReference checks a reference to an object of any kind beside the one that refers to it.
func localReference(group *string, kind, name string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if group != nil {
		errs = dnsSubdomain(*group, path.Child("apiGroup"))
	}
	errs = append(errs, pathSegment(kind, path.Child("kind"))...)
	return append(errs, pathSegment(name, path.Child("name"))...)
}

// pathSegment asks for a value that fits into a URL.
func pathSegment(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return invalid(path, value, content.IsPathSegmentName(value))
}

// ValidateIPAddress is named by the address that it claims: in its one canonical spelling, or two objects would claim one.
func ValidateIPAddress(a *networkingv1.IPAddress) field.ErrorList {
	errs := objectMeta(&a.ObjectMeta, clusterScoped, ipAddressName)
	ref, path := a.Spec.ParentRef, field.NewPath("spec", "parentRef")
	if ref == nil {
		return append(errs, field.Required(path, ""))
	}
	if ref.Group != "" { // Services are of the group without a name
		errs = append(errs, dnsSubdomain(ref.Group, path.Child("group"))...)
	}
	errs = append(errs, pathSegment(ref.Resource, path.Child("resource"))...)
	errs = append(errs, pathSegment(ref.Name, path.Child("name"))...)
	if ref.Namespace != "" {
		errs = append(errs, pathSegment(ref.Namespace, path.Child("namespace"))...)
	}
	return errs
}

func ipAddressName(name string, _ bool) []string {
	var messages []string
	for _, err := range utilvalidation.IsValidIP(nil, name) {
		messages = append(messages, err.Detail)
	}
	return messages
}

func ValidateIPAddressUpdate(a, old *networkingv1.IPAddress) field.ErrorList {
	errs := immutable(a.Spec.ParentRef, old.Spec.ParentRef, field.NewPath("spec", "parentRef"))
	return append(ValidateIPAddress(a), errs...)
}

func ValidateServiceCIDR(c *networkingv1.ServiceCIDR) field.ErrorList {
	errs := objectMeta(&c.ObjectMeta, clusterScoped, validation.NameIsDNSSubdomain)
	return append(errs, serviceRanges(&c.Spec)...)
}

func serviceRanges(s *networkingv1.ServiceCIDRSpec) field.ErrorList {
	path := field.NewPath("spec", "cidrs")
	switch {
	case len(s.CIDRs) == 0:
		return field.ErrorList{field.Required(path, "at least one CIDR required")}
	case len(s.CIDRs) > 2:
		return field.ErrorList{field.Invalid(path, s, "may only hold up to 2 values")}
	}
	var errs field.ErrorList
	for i, cidr := range s.CIDRs {
		errs = append(errs, utilvalidation.IsValidCIDR(path.Index(i), cidr)...)
	}
	if len(s.CIDRs) == 2 {
		family := netutils.IPFamilyOfCIDRString(s.CIDRs[0])
		if family == netutils.IPFamilyOfCIDRString(s.CIDRs[1]) && family != netutils.IPFamilyUnknown {
			errs = append(errs, field.Invalid(path, s.CIDRs,
				"may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"))
		}
	}
	return errs
}

// ValidateServiceCIDRUpdate lets a range of one family get the other one too, and nothing else.
func ValidateServiceCIDRUpdate(c, old *networkingv1.ServiceCIDR) field.ErrorList {
	path := field.NewPath("spec", "cidrs")
	var errs field.ErrorList
	grows := len(old.Spec.CIDRs) == 1 && len(c.Spec.CIDRs) == 2
	if len(old.Spec.CIDRs) != len(c.Spec.CIDRs) && !grows {
		return field.ErrorList{field.Invalid(path, c.Spec.CIDRs, validation.FieldImmutableErrorMsg)}
	}
	for i, cidr := range old.Spec.CIDRs {
		if c.Spec.CIDRs[i] != cidr {
			errs = append(errs, field.Invalid(path.Index(i), c.Spec.CIDRs[i], validation.FieldImmutableErrorMsg))
		}
	}
	if grows {
		errs = append(errs, serviceRanges(&c.Spec)...)
	}
	return errs
}

// deprecatedClassAnnotation named the class before there was a field for it.
const deprecatedClassAnnotation = "kubernetes.io/ingress.class"

func IngressWarnings(i *networkingv1.Ingress) []string {
	if _, set := i.Annotations[deprecatedClassAnnotation]; set && i.Spec.IngressClassName == nil {
		return []string{fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead", deprecatedClassAnnotation)}
	}
	return nil
}
