package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"portico.dev/internal/coreapi/defaults"
)

//lint:file-ignore SA1019 v1 Endpoints are deprecated, and still served to clients from before EndpointSlices

func defaultService(s *corev1.Service) {
	defaults.Set(&s.Spec.Type, corev1.ServiceTypeClusterIP)
	sessionAffinity(&s.Spec)
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		defaults.Set(&port.Protocol, corev1.ProtocolTCP)
		if port.TargetPort == intstr.FromInt32(0) || port.TargetPort == intstr.FromString("") {
			port.TargetPort = intstr.FromInt32(port.Port)
		}
	}
	balancer := s.Spec.Type == corev1.ServiceTypeLoadBalancer
	outside := balancer || s.Spec.Type == corev1.ServiceTypeNodePort ||
		s.Spec.Type == corev1.ServiceTypeClusterIP && len(s.Spec.ExternalIPs) > 0
	if outside {
		defaults.Set(&s.Spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if outside || s.Spec.Type == corev1.ServiceTypeClusterIP {
		defaults.Point(&s.Spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	}
	if !balancer {
		return
	}
	defaults.Point(&s.Spec.AllocateLoadBalancerNodePorts, true)
	for i := range s.Status.LoadBalancer.Ingress {
		if ingress := &s.Status.LoadBalancer.Ingress[i]; ingress.IP != "" {
			defaults.Point(&ingress.IPMode, corev1.LoadBalancerIPModeVIP)
		}
	}
}

func sessionAffinity(spec *corev1.ServiceSpec) {
	defaults.Set(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		config := spec.SessionAffinityConfig
		if config == nil || config.ClientIP == nil || config.ClientIP.TimeoutSeconds == nil {
			seconds := corev1.DefaultClientIPServiceAffinitySeconds
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds},
			}
		}
	}
}
