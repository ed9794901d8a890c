package discovery

import (
	"net/netip"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

//lint:file-ignore SA1019 v1 Endpoints are deprecated, and still served to clients from before EndpointSlices

// sameEndpoints compares slices without their metadata except for labels, which contain the name of the Service.
func sameEndpoints(a, b runtime.Object) bool {
	x, y := *a.(*discoveryv1.EndpointSlice), *b.(*discoveryv1.EndpointSlice)
	x.ObjectMeta = metav1.ObjectMeta{Labels: x.Labels}
	y.ObjectMeta = metav1.ObjectMeta{Labels: y.Labels}
	return apiequality.Semantic.DeepEqual(&x, &y)
}

func endpointSliceResource() registry.Resource {
	return registry.Resource{
		Name: "endpointslices", Singular: "endpointslice", Object: &discoveryv1.EndpointSlice{}, List: &discoveryv1.EndpointSliceList{},
		Samples: []string{
			"metadata: {name: a, namespace: ns}\n" +
				"addressType: IPv6\n" +
				"endpoints: [{addresses: ['fd00::1']}]\n" +
				"ports: [{port: 80}]",
		},
		Rules:      validate.OnUpdate(validateEndpointSlice, validateEndpointSliceUpdate),
		Defaults:   defaults.Of(defaultEndpointSlice),
		Columns:    endpointSliceColumns,
		WatchCache: true, AllowUnconditionalUpdate: true, Generations: true, SameContent: sameEndpoints,
	}
}

func endpointSliceColumns() columns.Printer {
	doc := discoveryv1.EndpointSlice{}.SwaggerDoc()
	return columns.Show(func(s *discoveryv1.EndpointSlice, now time.Time) []any {
		return []any{s.Name, string(s.AddressType), slicePortCells(s.Ports), sliceAddresses(s.Endpoints), columns.AgeOf(s, now)}
	}, columns.Name(), columns.Text("AddressType", doc["addressType"]), columns.Text("Ports", doc["ports"]), columns.Text("Endpoints", doc["endpoints"]),
		columns.Age())
}

func slicePortCells(ports []discoveryv1.EndpointPort) string {
	shown := make([]string, 0, len(ports))
	for _, p := range ports {
		switch {
		case p.Port != nil:
			shown = append(shown, strconv.Itoa(int(*p.Port)))
		case p.Name != nil:
			shown = append(shown, *p.Name)
		default:
			shown = append(shown, "*")
		}
	}
	return columns.OrElse(columns.Clipped(shown, columns.Unset), columns.Unset)
}

func sliceAddresses(endpoints []discoveryv1.Endpoint) string {
	var shown []string
	for _, endpoint := range endpoints {
		shown = append(shown, endpoint.Addresses...)
	}
	return columns.Clipped(shown, columns.Unset)
}

func defaultEndpointSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		defaults.Point(&s.Ports[i].Name, "")
		defaults.Point(&s.Ports[i].Protocol, corev1.ProtocolTCP)
	}
}

const (
	maxSliceEndpoints    = 1000
	maxSlicePorts        = 20000
	maxEndpointAddresses = 100
	maxTopologyLabels    = 16
	maxHints             = 8
)

func validateEndpointSlice(s *discoveryv1.EndpointSlice) field.ErrorList {
	return append(sliceFrame(s), sliceEndpoints(s, field.NewPath("endpoints"))...)
}

// sliceFrame checks a slice without its endpoints.
func sliceFrame(s *discoveryv1.EndpointSlice) field.ErrorList {
	errs := validate.ObjectMeta(&s.ObjectMeta, validate.Namespaced, validation.NameIsDNSSubdomain)
	errs = append(errs, validate.Required(s.AddressType, field.NewPath("addressType"), discoveryv1.AddressTypeFQDN,
		discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)...)
	return append(errs, slicePorts(s.Ports, field.NewPath("ports"))...)
}

func validateEndpointSliceUpdate(s, old *discoveryv1.EndpointSlice) field.ErrorList {
	errs := append(sliceFrame(s), validate.Immutable(s.AddressType, old.AddressType, field.NewPath("addressType"))...)
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
		return append(utilvalidation.IsValidIP(path, address), validate.EndpointIP(address, path)...)
	case discoveryv1.AddressTypeFQDN:
		return utilvalidation.IsFullyQualifiedDomainName(path, address)
	}
	return nil
}

func sliceEndpoint(e *discoveryv1.Endpoint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if e.NodeName != nil {
		errs = append(errs, validate.Invalid(path.Child("nodeName"), *e.NodeName, validation.NameIsDNSSubdomain(*e.NodeName, false))...)
	}
	topology := path.Child("deprecatedTopology")
	if len(e.DeprecatedTopology) > maxTopologyLabels {
		errs = append(errs, field.TooMany(topology, len(e.DeprecatedTopology), maxTopologyLabels))
	}
	errs = append(errs, metav1validation.ValidateLabels(e.DeprecatedTopology, topology)...)
	if e.Hostname != nil {
		errs = append(errs, validate.DnsLabel(*e.Hostname, path.Child("hostname"))...)
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
		errs = append(errs, validate.Invalid(zones.Index(i).Child("name"), zone.Name, utilvalidation.IsValidLabelValue(zone.Name))...)
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
		errs = append(errs, validate.Invalid(path.Index(i).Child("name"), node.Name, validation.NameIsDNSSubdomain(node.Name, false))...)
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
			errs = append(errs, validate.DnsLabel(name, at.Child("name"))...)
		}
		if names.Has(name) {
			errs = append(errs, field.Duplicate(at.Child("name"), name))
		}
		names.Insert(name)
		if p.Protocol == nil {
			errs = append(errs, field.Required(at.Child("protocol"), ""))
		} else {
			errs = append(errs, validate.Protocol(*p.Protocol, at.Child("protocol"))...)
		}
		if p.AppProtocol != nil {
			errs = append(errs, validate.Qualified(*p.AppProtocol, at.Child("appProtocol"))...)
		}
	}
	return errs
}
