package networking

import (
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func ipAddressResource() registry.Resource {
	return registry.Resource{
		Name: "ipaddresses", Singular: "ipaddress", ShortNames: []string{"ip"}, ClusterScoped: true,
		Object: &networkingv1.IPAddress{}, List: &networkingv1.IPAddressList{}, WatchCache: true, AllowUnconditionalUpdate: true,
		Samples: []string{
			"metadata: {name: 10.96.0.1}\n" +
				"spec: {parentRef: {resource: services, namespace: default, name: kubernetes}}",
			"metadata: {name: 'fd00::1'}\n" +
				"spec: {parentRef: {resource: services, namespace: default, name: kubernetes}}",
		},
		Rules:   validate.OnUpdate(validateIPAddress, validateIPAddressUpdate),
		Columns: ipAddressColumns,
		Spec:    registry.SpecOf(func(o *networkingv1.IPAddress) *networkingv1.IPAddressSpec { return &o.Spec }),
	}
}

// ipAddressColumns has no age. kube-apiserver adds an age to rows, but not a column for it.
func ipAddressColumns() columns.Printer {
	return columns.Show(func(a *networkingv1.IPAddress, _ time.Time) []any {
		parent := columns.None
		if ref := a.Spec.ParentRef; ref != nil {
			parent = strings.ToLower(schema.GroupResource{Group: ref.Group, Resource: ref.Resource}.String())
			if ref.Namespace != "" {
				parent += "/" + ref.Namespace
			}
			parent += "/" + ref.Name
		}
		return []any{a.Name, parent}
	}, columns.Name(), columns.Text("ParentRef", networkingv1.IPAddressSpec{}.SwaggerDoc()["parentRef"]))
}

// validateIPAddress requires the canonical form of the claimed address as the name, because two spellings could claim it twice.
func validateIPAddress(a *networkingv1.IPAddress) field.ErrorList {
	errs := validate.ObjectMeta(&a.ObjectMeta, validate.ClusterScoped, ipAddressName)
	ref, path := a.Spec.ParentRef, field.NewPath("spec", "parentRef")
	if ref == nil {
		return append(errs, field.Required(path, ""))
	}
	if ref.Group != "" { // Services are in the core group
		errs = append(errs, validate.DnsSubdomain(ref.Group, path.Child("group"))...)
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

func validateIPAddressUpdate(a, old *networkingv1.IPAddress) field.ErrorList {
	errs := validate.Immutable(a.Spec.ParentRef, old.Spec.ParentRef, field.NewPath("spec", "parentRef"))
	return append(validateIPAddress(a), errs...)
}
