package validate

import (
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

//lint:file-ignore SA1019 v1 Endpoints are deprecated, and still served to clients from before EndpointSlices

func ValidateEndpoints(e *corev1.Endpoints) field.ErrorList {
	errs := objectMeta(&e.ObjectMeta, namespaced, validation.NameIsDNSSubdomain)
	return append(errs, endpointSubsets(e.Subsets)...)
}

// ValidateEndpointsUpdate lets be what older servers have accepted, as long as nobody changes it.
func ValidateEndpointsUpdate(e, old *corev1.Endpoints) field.ErrorList {
	errs := objectMeta(&e.ObjectMeta, namespaced, validation.NameIsDNSSubdomain)
	bad := endpointSubsets(e.Subsets)
	if len(bad) > 0 && apiequality.Semantic.DeepEqual(e.Subsets, old.Subsets) {
		return errs
	}
	return append(errs, bad...)
}

func endpointSubsets(subsets []corev1.EndpointSubset) field.ErrorList {
	var errs field.ErrorList
	for i, subset := range subsets {
		path := field.NewPath("subsets").Index(i)
		if len(subset.Addresses) == 0 && len(subset.NotReadyAddresses) == 0 {
			errs = append(errs, field.Required(path, "must specify `addresses` or `notReadyAddresses`"))
		}
		for j := range subset.Addresses {
			errs = append(errs, endpointAddress(&subset.Addresses[j], path.Child("addresses").Index(j))...)
		}
		for j := range subset.NotReadyAddresses {
			errs = append(errs, endpointAddress(&subset.NotReadyAddresses[j], path.Child("notReadyAddresses").Index(j))...)
		}
		for j := range subset.Ports {
			errs = append(errs, endpointPort(&subset.Ports[j], len(subset.Ports) > 1, path.Child("ports").Index(j))...)
		}
	}
	return errs
}

func endpointAddress(a *corev1.EndpointAddress, path *field.Path) field.ErrorList {
	errs := utilvalidation.IsValidIPForLegacyField(path.Child("ip"), a.IP, true, nil)
	if a.Hostname != "" {
		errs = append(errs, dnsLabel(a.Hostname, path.Child("hostname"))...)
	}
	if a.NodeName != nil {
		errs = append(errs, invalid(path.Child("nodeName"), *a.NodeName, validation.NameIsDNSSubdomain(*a.NodeName, false))...)
	}
	if len(errs) > 0 {
		return errs
	}
	return ordinaryIP(a.IP, path.Child("ip"))
}

func endpointPort(p *corev1.EndpointPort, several bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case p.Name != "":
		errs = append(errs, dnsLabel(p.Name, path.Child("name"))...)
	case several:
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	errs = append(errs, portNumber(p.Port, path.Child("port"))...)
	errs = append(errs, protocol(p.Protocol, path.Child("protocol"))...)
	if p.AppProtocol != nil {
		errs = append(errs, qualified(*p.AppProtocol, path.Child("appProtocol"))...)
	}
	return errs
}
