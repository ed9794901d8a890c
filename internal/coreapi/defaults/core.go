package defaults

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

//lint:file-ignore SA1019 v1 Endpoints are deprecated, and still served to clients from before EndpointSlices

// DefaultNamespace carries its own name as a label, so that label selectors (of policies, of webhooks) can name one namespace.
func DefaultNamespace(n *corev1.Namespace) {
	set(&n.Status.Phase, corev1.NamespaceActive)
	if n.Name == "" {
		return // the name is still to be generated; the strategy sets the label once it exists
	}
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[corev1.LabelMetadataName] = n.Name
}

// DefaultSecret also moves stringData, which is for writing only, into data: kube-apiserver does that when it converts to its
// internal kind, and here there is no other kind to convert to. Left in place it would be stored and shown.
func DefaultSecret(s *corev1.Secret) {
	set(&s.Type, corev1.SecretTypeOpaque)
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for key, value := range s.StringData {
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
}

func DefaultService(s *corev1.Service) {
	set(&s.Spec.Type, corev1.ServiceTypeClusterIP)
	sessionAffinity(&s.Spec)
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		set(&port.Protocol, corev1.ProtocolTCP)
		if port.TargetPort == intstr.FromInt32(0) || port.TargetPort == intstr.FromString("") {
			port.TargetPort = intstr.FromInt32(port.Port)
		}
	}
	balancer := s.Spec.Type == corev1.ServiceTypeLoadBalancer
	outside := balancer || s.Spec.Type == corev1.ServiceTypeNodePort ||
		s.Spec.Type == corev1.ServiceTypeClusterIP && len(s.Spec.ExternalIPs) > 0
	if outside {
		set(&s.Spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if outside || s.Spec.Type == corev1.ServiceTypeClusterIP {
		point(&s.Spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	}
	if !balancer {
		return
	}
	point(&s.Spec.AllocateLoadBalancerNodePorts, true)
	for i := range s.Status.LoadBalancer.Ingress {
		if ingress := &s.Status.LoadBalancer.Ingress[i]; ingress.IP != "" {
			point(&ingress.IPMode, corev1.LoadBalancerIPModeVIP)
		}
	}
}

func sessionAffinity(spec *corev1.ServiceSpec) {
	set(&spec.SessionAffinity, corev1.ServiceAffinityNone)
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

func DefaultEndpoints(e *corev1.Endpoints) {
	for i := range e.Subsets {
		for j := range e.Subsets[i].Ports {
			set(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
		}
	}
}

func DefaultEndpointSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		point(&s.Ports[i].Name, "")
		point(&s.Ports[i].Protocol, corev1.ProtocolTCP)
	}
}

// DefaultNode offers all of its capacity unless it says otherwise.
func DefaultNode(n *corev1.Node) {
	if cidr := n.Spec.PodCIDR; cidr != "" && (len(n.Spec.PodCIDRs) == 0 || n.Spec.PodCIDRs[0] != cidr) {
		n.Spec.PodCIDRs = []string{cidr} // the old field wins: whoever writes it may not know the new one
	} else if cidr == "" && len(n.Spec.PodCIDRs) > 0 {
		n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	}
	milli(n.Status.Capacity)
	milli(n.Status.Allocatable)
	if n.Status.Allocatable == nil && n.Status.Capacity != nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
}
