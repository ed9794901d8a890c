package columns

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func ServiceColumns() Printer {
	doc := corev1.ServiceSpec{}.SwaggerDoc()
	return show(func(s *corev1.Service, now time.Time) []any {
		return []any{
			s.Name, string(s.Spec.Type), orElse(s.Spec.ClusterIP, none), externalIP(s), servicePorts(s.Spec.Ports),
			ageOf(s, now), labels.FormatLabels(s.Spec.Selector),
		}
	}, name(), text("Type", doc["type"]), text("Cluster-IP", doc["clusterIP"]), text("External-IP", doc["externalIPs"]),
		text("Port(s)", doc["ports"]), age(), wide(text("Selector", doc["selector"])))
}

// externalIP says where the service is reached from outside: for a load balancer what was given to it, and only
// "<pending>" while nothing was.
func externalIP(s *corev1.Service) string {
	switch s.Spec.Type {
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		return orElse(strings.Join(s.Spec.ExternalIPs, ","), none)
	case corev1.ServiceTypeLoadBalancer:
		addresses := append(balancerAddresses(s.Status.LoadBalancer), s.Spec.ExternalIPs...)
		return orElse(strings.Join(addresses, ","), "<pending>")
	}
	return unknown
}

func balancerAddresses(status corev1.LoadBalancerStatus) []string {
	var addresses []string
	for _, ingress := range status.Ingress {
		if address := orElse(ingress.IP, ingress.Hostname); address != "" {
			addresses = append(addresses, address)
		}
	}
	slices.Sort(addresses)
	return slices.Compact(addresses)
}

func servicePorts(ports []corev1.ServicePort) string {
	shown := make([]string, 0, len(ports))
	for _, p := range ports {
		if p.NodePort > 0 {
			shown = append(shown, fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol))
		} else {
			shown = append(shown, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
		}
	}
	return orElse(strings.Join(shown, ","), none)
}
