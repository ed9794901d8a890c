package core

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"portico.dev/internal/coreapi/columns"
)

func serviceColumns() columns.Printer {
	doc := corev1.ServiceSpec{}.SwaggerDoc()
	return columns.Show(func(s *corev1.Service, now time.Time) []any {
		return []any{
			s.Name, string(s.Spec.Type), columns.OrElse(s.Spec.ClusterIP, columns.None), externalIP(s), servicePortCells(s.Spec.Ports),
			columns.AgeOf(s, now), labels.FormatLabels(s.Spec.Selector),
		}
	}, columns.Name(), columns.Text("Type", doc["type"]), columns.Text("Cluster-IP", doc["clusterIP"]), columns.Text("External-IP", doc["externalIPs"]),
		columns.Text("Port(s)", doc["ports"]), columns.Age(), columns.Wide(columns.Text("Selector", doc["selector"])))
}

// externalIP returns the external addresses of the service. A load balancer has "<pending>" until it has an address.
func externalIP(s *corev1.Service) string {
	switch s.Spec.Type {
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		return columns.OrElse(strings.Join(s.Spec.ExternalIPs, ","), columns.None)
	case corev1.ServiceTypeLoadBalancer:
		addresses := append(balancerAddresses(s.Status.LoadBalancer), s.Spec.ExternalIPs...)
		return columns.OrElse(strings.Join(addresses, ","), "<pending>")
	}
	return columns.Unknown
}

func balancerAddresses(status corev1.LoadBalancerStatus) []string {
	var addresses []string
	for _, ingress := range status.Ingress {
		if address := columns.OrElse(ingress.IP, ingress.Hostname); address != "" {
			addresses = append(addresses, address)
		}
	}
	slices.Sort(addresses)
	return slices.Compact(addresses)
}

func servicePortCells(ports []corev1.ServicePort) string {
	shown := make([]string, 0, len(ports))
	for _, p := range ports {
		if p.NodePort > 0 {
			shown = append(shown, fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol))
		} else {
			shown = append(shown, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
		}
	}
	return columns.OrElse(strings.Join(shown, ","), columns.None)
}
