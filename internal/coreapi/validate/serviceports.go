package validate

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// kubeletPort is open on every node; a load balancer on it would publish the kubelet.
const kubeletPort = 10250

func servicePorts(s *corev1.Service, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(s.Spec.Ports) == 0 && s.Spec.ClusterIP != corev1.ClusterIPNone && s.Spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, field.Required(path, ""))
	}
	names := sets.New[string]()
	type pair struct {
		protocol corev1.Protocol
		port     int32
	}
	ports, nodePorts := sets.New[pair](), sets.New[pair]()
	for i, p := range s.Spec.Ports {
		at := path.Index(i)
		errs = append(errs, servicePort(&p, len(s.Spec.Ports) > 1, at)...)
		errs = append(errs, publishedPort(s.Spec.Type, &p, at)...)
		if p.Name != "" && names.Has(p.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
		}
		names.Insert(p.Name)
		if key := (pair{p.Protocol, p.Port}); ports.Has(key) {
			errs = append(errs, field.Duplicate(at, corev1.ServicePort{Protocol: p.Protocol, Port: p.Port}))
		} else {
			ports.Insert(key)
		}
		if key := (pair{p.Protocol, p.NodePort}); p.NodePort != 0 && nodePorts.Has(key) {
			errs = append(errs, field.Duplicate(at.Child("nodePort"), p.NodePort))
		} else {
			nodePorts.Insert(key)
		}
	}
	return errs
}

func servicePort(p *corev1.ServicePort, several bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case p.Name != "":
		errs = append(errs, dnsLabel(p.Name, path.Child("name"))...)
	case several:
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	errs = append(errs, portNumber(p.Port, path.Child("port"))...)
	errs = append(errs, protocol(p.Protocol, path.Child("protocol"))...)
	errs = append(errs, portOrName(p.TargetPort, path.Child("targetPort"))...)
	if p.AppProtocol != nil {
		errs = append(errs, qualified(*p.AppProtocol, path.Child("appProtocol"))...)
	}
	return errs
}

func publishedPort(kind corev1.ServiceType, p *corev1.ServicePort, path *field.Path) field.ErrorList {
	switch {
	case kind == corev1.ServiceTypeLoadBalancer && p.Port == kubeletPort:
		return field.ErrorList{field.Invalid(path, p.Port,
			fmt.Sprintf("may not expose port %d externally since it is used by kubelet", kubeletPort))}
	case kind == corev1.ServiceTypeClusterIP && p.NodePort != 0:
		return field.ErrorList{field.Forbidden(path.Child("nodePort"), "may not be used when `type` is 'ClusterIP'")}
	}
	return nil
}

func portOrName(port intstr.IntOrString, path *field.Path) field.ErrorList {
	if port.Type == intstr.String {
		return invalid(path, port.StrVal, utilvalidation.IsValidPortName(port.StrVal))
	}
	return portNumber(port.IntVal, path)
}

func qualified(value string, path *field.Path) field.ErrorList {
	return invalid(path, value, utilvalidation.IsQualifiedName(value))
}
