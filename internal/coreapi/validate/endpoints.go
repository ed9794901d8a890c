package validate

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

//lint:file-ignore SA1019 v1 Endpoints are deprecated, and still served to clients from before EndpointSlices

func endpoints(e *corev1.Endpoints) field.ErrorList { return endpointsUpdate(e, &corev1.Endpoints{}) }

// endpointsUpdate also keeps an address on the node that it was said to be on.
func endpointsUpdate(e, old *corev1.Endpoints) field.ErrorList {
	errs := objectMeta(&e.ObjectMeta, namespaced, validation.NameIsDNSSubdomain)
	stored, nodeOf := storedAddresses(old)
	for i, subset := range e.Subsets {
		path := field.NewPath("subsets").Index(i)
		if len(subset.Addresses) == 0 && len(subset.NotReadyAddresses) == 0 {
			errs = append(errs, field.Required(path, "must specify `addresses` or `notReadyAddresses`"))
		}
		for j := range subset.Addresses {
			errs = append(errs, endpointAddress(&subset.Addresses[j], stored, nodeOf, path.Child("addresses").Index(j))...)
		}
		for j := range subset.NotReadyAddresses {
			errs = append(errs, endpointAddress(&subset.NotReadyAddresses[j], stored, nodeOf,
				path.Child("notReadyAddresses").Index(j))...)
		}
		for j := range subset.Ports {
			errs = append(errs, endpointPort(&subset.Ports[j], len(subset.Ports) > 1, path.Child("ports").Index(j))...)
		}
	}
	return errs
}

func storedAddresses(e *corev1.Endpoints) (ips []string, nodeOf map[string]string) {
	nodeOf = map[string]string{}
	for _, subset := range e.Subsets {
		for _, list := range [][]corev1.EndpointAddress{subset.Addresses, subset.NotReadyAddresses} {
			for _, address := range list {
				ips = append(ips, address.IP)
				if address.NodeName != nil {
					nodeOf[address.IP] = *address.NodeName
				}
			}
		}
	}
	return ips, nodeOf
}

func endpointAddress(a *corev1.EndpointAddress, stored []string, nodeOf map[string]string, path *field.Path) field.ErrorList {
	errs := utilvalidation.IsValidIPForLegacyField(path.Child("ip"), a.IP, true, stored)
	if a.Hostname != "" {
		errs = append(errs, dnsLabel(a.Hostname, path.Child("hostname"))...)
	}
	if a.NodeName != nil {
		errs = append(errs, invalid(path.Child("nodeName"), *a.NodeName, validation.NameIsDNSSubdomain(*a.NodeName, false))...)
		if before, known := nodeOf[a.IP]; known && before != *a.NodeName {
			errs = append(errs, field.Forbidden(path.Child("nodeName"),
				fmt.Sprintf("Cannot change NodeName for %s to %s", a.IP, *a.NodeName)))
		}
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
