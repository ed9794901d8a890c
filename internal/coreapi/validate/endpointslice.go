package validate

import (
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxSliceEndpoints    = 1000
	maxSlicePorts        = 20000
	maxEndpointAddresses = 100
	maxTopologyLabels    = 16
	maxHints             = 8
)

func ValidateEndpointSlice(s *discoveryv1.EndpointSlice) field.ErrorList {
	return append(sliceFrame(s), sliceEndpoints(s, field.NewPath("endpoints"))...)
}

// sliceFrame is a slice without its endpoints.
func sliceFrame(s *discoveryv1.EndpointSlice) field.ErrorList {
	errs := objectMeta(&s.ObjectMeta, namespaced, validation.NameIsDNSSubdomain)
	errs = append(errs, required(s.AddressType, field.NewPath("addressType"), discoveryv1.AddressTypeFQDN,
		discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)...)
	return append(errs, slicePorts(s.Ports, field.NewPath("ports"))...)
}

func ValidateEndpointSliceUpdate(s, old *discoveryv1.EndpointSlice) field.ErrorList {
	errs := append(sliceFrame(s), immutable(s.AddressType, old.AddressType, field.NewPath("addressType"))...)
	bad := sliceEndpoints(s, field.NewPath("endpoints"))
	if len(bad) > 0 && apiequality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) {
		return errs // older servers accepted them
	}
	return append(errs, bad...)
}

func sliceEndpoints(s *discoveryv1.EndpointSlice, path *field.Path) field.ErrorList {
	if len(s.Endpoints) > maxSliceEndpoints {
		return field.ErrorList{field.TooMany(path, len(s.Endpoints), maxSliceEndpoints)}
	}
	var errs field.ErrorList
	for i := range s.Endpoints {
		endpoint, at := &s.Endpoints[i], path.Index(i)
		addresses := at.Child("addresses")
		switch count := len(endpoint.Addresses); {
		case count == 0:
			errs = append(errs, field.Required(addresses, "must contain at least 1 address"))
		case count > maxEndpointAddresses:
			errs = append(errs, field.TooMany(addresses, count, maxEndpointAddresses))
		}
		for j, address := range endpoint.Addresses {
			errs = append(errs, sliceAddress(s.AddressType, address, addresses.Index(j))...)
		}
		errs = append(errs, sliceEndpoint(endpoint, at)...)
	}
	return errs
}

func sliceAddress(kind discoveryv1.AddressType, address string, path *field.Path) field.ErrorList {
	switch kind {
	case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6:
		ip, err := netip.ParseAddr(address)
		if err != nil || ip.Zone() != "" {
			return utilvalidation.IsValidIP(path, address)
		}
		if ip.Is4() != (kind == discoveryv1.AddressTypeIPv4) {
			return field.ErrorList{field.Invalid(path, address, "must be an "+string(kind)+" address")}
		}
		return append(utilvalidation.IsValidIP(path, address), ordinaryIP(address, path)...)
	case discoveryv1.AddressTypeFQDN:
		return utilvalidation.IsFullyQualifiedDomainName(path, address)
	}
	return nil
}

func sliceEndpoint(e *discoveryv1.Endpoint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if e.NodeName != nil {
		errs = append(errs, invalid(path.Child("nodeName"), *e.NodeName, validation.NameIsDNSSubdomain(*e.NodeName, false))...)
	}
	topology := path.Child("deprecatedTopology")
	if len(e.DeprecatedTopology) > maxTopologyLabels {
		errs = append(errs, field.TooMany(topology, len(e.DeprecatedTopology), maxTopologyLabels))
	}
	errs = append(errs, metav1validation.ValidateLabels(e.DeprecatedTopology, topology)...)
	if e.Hostname != nil {
		errs = append(errs, dnsLabel(*e.Hostname, path.Child("hostname"))...)
	}
	if e.Hints == nil {
		return errs
	}
	errs = append(errs, nodeHints(e.Hints.ForNodes, path.Child("hints", "forNodes"))...)
	zones := path.Child("hints", "forZones")
	if len(e.Hints.ForZones) > maxHints {
		errs = append(errs, field.TooMany(zones, len(e.Hints.ForZones), maxHints))
		return errs
	}
	seen := sets.New[string]()
	for i, zone := range e.Hints.ForZones {
		if seen.Has(zone.Name) {
			errs = append(errs, field.Duplicate(zones.Index(i).Child("name"), zone.Name))
		}
		seen.Insert(zone.Name)
		errs = append(errs, invalid(zones.Index(i).Child("name"), zone.Name, utilvalidation.IsValidLabelValue(zone.Name))...)
	}
	return errs
}

func nodeHints(nodes []discoveryv1.ForNode, path *field.Path) field.ErrorList {
	if len(nodes) > maxHints {
		return field.ErrorList{field.TooMany(path, len(nodes), maxHints)}
	}
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, node := range nodes {
		if seen.Has(node.Name) {
			errs = append(errs, field.Duplicate(path.Index(i).Child("name"), node.Name))
		}
		seen.Insert(node.Name)
		errs = append(errs, invalid(path.Index(i).Child("name"), node.Name, validation.NameIsDNSSubdomain(node.Name, false))...)
	}
	return errs
}

func slicePorts(ports []discoveryv1.EndpointPort, path *field.Path) field.ErrorList {
	if len(ports) > maxSlicePorts {
		return field.ErrorList{field.TooMany(path, len(ports), maxSlicePorts)}
	}
	var errs field.ErrorList
	names := sets.New[string]()
	for i, p := range ports {
		at, name := path.Index(i), ""
		if p.Name != nil {
			name = *p.Name
		}
		if name != "" {
			errs = append(errs, dnsLabel(name, at.Child("name"))...)
		}
		if names.Has(name) {
			errs = append(errs, field.Duplicate(at.Child("name"), name))
		}
		names.Insert(name)
		if p.Protocol == nil {
			errs = append(errs, field.Required(at.Child("protocol"), ""))
		} else {
			errs = append(errs, protocol(*p.Protocol, at.Child("protocol"))...)
		}
		if p.AppProtocol != nil {
			errs = append(errs, qualified(*p.AppProtocol, at.Child("appProtocol"))...)
		}
	}
	return errs
}
