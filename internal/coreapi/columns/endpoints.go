package columns

import (
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

//lint:file-ignore SA1019 v1 Endpoints are deprecated, and still served to clients from before EndpointSlices

func EndpointsColumns() Printer {
	return show(func(e *corev1.Endpoints, now time.Time) []any {
		return []any{e.Name, hostPorts(e.Subsets), ageOf(e, now)}
	}, name(), text("Endpoints", corev1.Endpoints{}.SwaggerDoc()["subsets"]), age())
}

// hostPorts lists the ready addresses with each of their ports, and alone when a headless service names no port.
func hostPorts(subsets []corev1.EndpointSubset) string {
	if len(subsets) == 0 {
		return none
	}
	var shown []string
	for _, subset := range subsets {
		if len(subset.Ports) == 0 {
			for _, address := range subset.Addresses {
				shown = append(shown, address.IP)
			}
		}
		for _, port := range subset.Ports {
			for _, address := range subset.Addresses {
				shown = append(shown, net.JoinHostPort(address.IP, strconv.Itoa(int(port.Port))))
			}
		}
	}
	return clipped(shown, "")
}

func EndpointSliceColumns() Printer {
	doc := discoveryv1.EndpointSlice{}.SwaggerDoc()
	return show(func(s *discoveryv1.EndpointSlice, now time.Time) []any {
		return []any{s.Name, string(s.AddressType), slicePorts(s.Ports), sliceAddresses(s.Endpoints), ageOf(s, now)}
	}, name(), text("AddressType", doc["addressType"]), text("Ports", doc["ports"]), text("Endpoints", doc["endpoints"]),
		age())
}

func slicePorts(ports []discoveryv1.EndpointPort) string {
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
	return orElse(clipped(shown, unset), unset)
}

func sliceAddresses(endpoints []discoveryv1.Endpoint) string {
	var shown []string
	for _, endpoint := range endpoints {
		shown = append(shown, endpoint.Addresses...)
	}
	return clipped(shown, unset)
}
