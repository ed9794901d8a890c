package core

import (
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

//lint:file-ignore SA1019 v1 Endpoints are deprecated, and still served to clients from before EndpointSlices

func endpointsResource() registry.Resource {
	return registry.Resource{
		Name: "endpoints", Singular: "endpoints", ShortNames: []string{"ep"},
		//lint:ignore SA1019 deprecated, and still read by clients from before EndpointSlices
		Object: &corev1.Endpoints{}, List: &corev1.EndpointsList{}, Directory: "services/endpoints",
		Samples: []string{
			"metadata: {name: a, namespace: ns}\n" +
				"subsets: [{addresses: [{ip: 10.0.0.1}], ports: [{port: 80}]}]",
		},
		Rules:      validate.OnUpdate(validateEndpoints, validateEndpointsUpdate),
		Defaults:   defaults.Of(defaultEndpoints),
		Columns:    endpointsColumns,
		WatchCache: true, AllowCreateOnUpdate: true, AllowUnconditionalUpdate: true,
	}
}

func endpointsColumns() columns.Printer {
	return columns.Show(func(e *corev1.Endpoints, now time.Time) []any {
		return []any{e.Name, hostPorts(e.Subsets), columns.AgeOf(e, now)}
	}, columns.Name(), columns.Text("Endpoints", corev1.Endpoints{}.SwaggerDoc()["subsets"]), columns.Age())
}

// hostPorts lists the ready addresses with each of their ports, or without a port if a headless service has none.
func hostPorts(subsets []corev1.EndpointSubset) string {
	if len(subsets) == 0 {
		return columns.None
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
	return columns.Clipped(shown, "")
}

func defaultEndpoints(e *corev1.Endpoints) {
	for i := range e.Subsets {
		for j := range e.Subsets[i].Ports {
			defaults.Set(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
		}
	}
}

func validateEndpoints(e *corev1.Endpoints) field.ErrorList {
	errs := validate.ObjectMeta(&e.ObjectMeta, validate.Namespaced, validation.NameIsDNSSubdomain)
	return append(errs, endpointSubsets(e.Subsets)...)
}

// validateEndpointsUpdate tolerates invalid subsets that older servers accepted, as long as they do not change.
func validateEndpointsUpdate(e, old *corev1.Endpoints) field.ErrorList {
	errs := validate.ObjectMeta(&e.ObjectMeta, validate.Namespaced, validation.NameIsDNSSubdomain)
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
		errs = append(errs, validate.Each(subset.Addresses, path.Child("addresses"), endpointAddress)...)
		errs = append(errs, validate.Each(subset.NotReadyAddresses, path.Child("notReadyAddresses"), endpointAddress)...)
		for j := range subset.Ports {
			errs = append(errs, endpointPort(&subset.Ports[j], len(subset.Ports) > 1, path.Child("ports").Index(j))...)
		}
	}
	return errs
}

func endpointAddress(a *corev1.EndpointAddress, path *field.Path) field.ErrorList {
	errs := utilvalidation.IsValidIPForLegacyField(path.Child("ip"), a.IP, true, nil)
	if a.Hostname != "" {
		errs = append(errs, validate.DnsLabel(a.Hostname, path.Child("hostname"))...)
	}
	if a.NodeName != nil {
		errs = append(errs, validate.Invalid(path.Child("nodeName"), *a.NodeName, validation.NameIsDNSSubdomain(*a.NodeName, false))...)
	}
	if len(errs) > 0 {
		return errs
	}
	return validate.EndpointIP(a.IP, path.Child("ip"))
}

func endpointPort(p *corev1.EndpointPort, several bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case p.Name != "":
		errs = append(errs, validate.DnsLabel(p.Name, path.Child("name"))...)
	case several:
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	errs = append(errs, validate.PortNumber(p.Port, path.Child("port"))...)
	errs = append(errs, validate.Protocol(p.Protocol, path.Child("protocol"))...)
	if p.AppProtocol != nil {
		errs = append(errs, validate.Qualified(*p.AppProtocol, path.Child("appProtocol"))...)
	}
	return errs
}
