package networking

import (
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func serviceCIDRResource() registry.Resource {
	return registry.Resource{
		Name: "servicecidrs", Singular: "servicecidr", ClusterScoped: true,
		Object: &networkingv1.ServiceCIDR{}, List: &networkingv1.ServiceCIDRList{}, WatchCache: true, AllowUnconditionalUpdate: true,
		Samples: []string{
			"metadata: {name: a}\n" +
				"spec: {cidrs: [10.99.0.0/24]}",
			"metadata: {name: kubernetes}\n" +
				"spec: {cidrs: [10.96.0.0/12, 'fd00::/108']}",
		},
		Rules:   validate.OnUpdate(validateServiceCIDR, validateServiceCIDRUpdate).CheckFinalizers(),
		Columns: serviceCIDRColumns,
		Spec:    registry.SpecOf(func(o *networkingv1.ServiceCIDR) *networkingv1.ServiceCIDRSpec { return &o.Spec }),
		Status:  registry.StatusOf(func(o *networkingv1.ServiceCIDR) *networkingv1.ServiceCIDRStatus { return &o.Status }),
	}
}

func serviceCIDRColumns() columns.Printer {
	return columns.Show(func(c *networkingv1.ServiceCIDR, now time.Time) []any {
		return []any{c.Name, strings.Join(c.Spec.CIDRs, ","), columns.AgeOf(c, now)}
	}, columns.Name(), columns.Text("CIDRs", networkingv1.ServiceCIDRSpec{}.SwaggerDoc()["cidrs"]), columns.Age())
}

func validateServiceCIDR(c *networkingv1.ServiceCIDR) field.ErrorList {
	errs := validate.ObjectMeta(&c.ObjectMeta, validate.ClusterScoped, validation.NameIsDNSSubdomain)
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

// validateServiceCIDRUpdate allows a range of the second IP family to be added, and no other change.
func validateServiceCIDRUpdate(c, old *networkingv1.ServiceCIDR) field.ErrorList {
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

// localReference checks a reference to an object of any kind in the namespace of the referring object.
func localReference(group *string, kind, name string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if group != nil {
		errs = validate.DnsSubdomain(*group, path.Child("apiGroup"))
	}
	errs = append(errs, pathSegment(kind, path.Child("kind"))...)
	return append(errs, pathSegment(name, path.Child("name"))...)
}

// pathSegment requires a value that is valid as a URL path segment.
func pathSegment(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return validate.Invalid(path, value, content.IsPathSegmentName(value))
}
