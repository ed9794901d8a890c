package allocation

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Some fields of a Service depend on each other, but clients may know only some of them: old clients send clusterIP without
// clusterIPs, and a repeated apply of a manifest sends neither. The functions below infer the missing values before validation.

func usesClusterIP(s *corev1.Service) bool { return s.Spec.Type != corev1.ServiceTypeExternalName }

func usesNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
}

func usesHealthCheck(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

func reachedFromOutside(s *corev1.Service) bool {
	return usesNodePorts(s) || s.Spec.Type == corev1.ServiceTypeClusterIP && len(s.Spec.ExternalIPs) > 0
}

// headless reports whether the only cluster IP is None.
func headless(s *corev1.Service) bool {
	return len(s.Spec.ClusterIPs) == 1 && s.Spec.ClusterIPs[0] == corev1.ClusterIPNone
}

func hasAddresses(s *corev1.Service) bool {
	return s != nil && usesClusterIP(s) && !headless(s) && len(s.Spec.ClusterIPs) > 0
}

// pairClusterIPs sets clusterIP or clusterIPs from the other if the client sent or changed only one of them.
func pairClusterIPs(s, old *corev1.Service) {
	now := &s.Spec
	if old == nil {
		if now.ClusterIP != "" && len(now.ClusterIPs) == 0 {
			now.ClusterIPs = []string{now.ClusterIP}
		}
		return
	}
	before := &old.Spec
	same := slices.Equal(now.ClusterIPs, before.ClusterIPs)
	switch {
	case now.ClusterIP == before.ClusterIP:
		if len(now.ClusterIPs) == 0 {
			now.ClusterIPs = slices.Clone(before.ClusterIPs)
		}
	case now.ClusterIP == "" && same:
		now.ClusterIPs = nil
	case now.ClusterIP != "" && same:
		now.ClusterIPs = []string{now.ClusterIP}
	}
}

// complete adds fields that are missing in a Service stored by an older version.
func complete(s *corev1.Service, families []corev1.IPFamily) {
	pairClusterIPs(s, nil)
	if !usesClusterIP(s) || len(s.Spec.IPFamilies) > 0 || len(s.Spec.ClusterIPs) == 0 {
		return
	}
	policy := corev1.IPFamilyPolicySingleStack
	switch {
	case headless(s) && len(s.Spec.Selector) == 0:
		policy = corev1.IPFamilyPolicyRequireDualStack
		s.Spec.IPFamilies = []corev1.IPFamily{families[0], otherFamily(families[0])}
	case headless(s):
		s.Spec.IPFamilies = families[:1:1]
	default:
		for _, ip := range s.Spec.ClusterIPs {
			if a, ok := parseAddress(ip); ok {
				s.Spec.IPFamilies = append(s.Spec.IPFamilies, FamilyOf(a))
			}
		}
		if len(s.Spec.IPFamilies) > 1 {
			policy = corev1.IPFamilyPolicyRequireDualStack
		}
	}
	s.Spec.IPFamilyPolicy = &policy
}

func otherFamily(f corev1.IPFamily) corev1.IPFamily {
	if f == corev1.IPv4Protocol {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// keepAllocated copies allocated values from old if the request omits them, so that a manifest can be applied again.
func keepAllocated(s, old *corev1.Service) {
	if usesClusterIP(s) && usesClusterIP(old) {
		s.Spec.ClusterIP = cmp.Or(s.Spec.ClusterIP, old.Spec.ClusterIP)
		if len(s.Spec.ClusterIPs) == 0 {
			s.Spec.ClusterIPs = slices.Clone(old.Spec.ClusterIPs)
		}
	}
	if usesNodePorts(s) && usesNodePorts(old) {
		keepNodePorts(s.Spec.Ports, old.Spec.Ports)
	}
	if usesHealthCheck(s) && usesHealthCheck(old) && s.Spec.HealthCheckNodePort == 0 {
		s.Spec.HealthCheckNodePort = old.Spec.HealthCheckNodePort
	}
}

// keepNodePorts identifies a port by its name, because every other field may have changed.
func keepNodePorts(now, before []corev1.ServicePort) {
	named := sets.New[int32]()
	for _, p := range now {
		named.Insert(p.NodePort)
	}
	byName := map[string]int32{}
	for _, p := range before {
		byName[p.Name] = p.NodePort
	}
	for i := range now {
		if kept := byName[now[i].Name]; now[i].NodePort == 0 && !named.Has(kept) {
			now[i].NodePort = kept
		}
	}
}

// forgetUnneeded clears fields that have no meaning after a change of type. It keeps a field that the request changes too, so
// that validation refuses it.
func forgetUnneeded(s, old *corev1.Service) {
	now, before := &s.Spec, &old.Spec
	if usesClusterIP(old) && !usesClusterIP(s) {
		if now.ClusterIP == before.ClusterIP && slices.Equal(now.ClusterIPs, before.ClusterIPs) {
			now.ClusterIP, now.ClusterIPs = "", nil
		}
		if slices.Equal(now.IPFamilies, before.IPFamilies) {
			now.IPFamilies = nil
		}
		if equal(now.IPFamilyPolicy, before.IPFamilyPolicy) {
			now.IPFamilyPolicy = nil
		}
	}
	if usesNodePorts(old) && !usesNodePorts(s) && nodePorts(old).IsSuperset(nodePorts(s)) {
		for i := range now.Ports {
			now.Ports[i].NodePort = 0
		}
	}
	if usesHealthCheck(old) && !usesHealthCheck(s) && now.HealthCheckNodePort == before.HealthCheckNodePort {
		now.HealthCheckNodePort = 0
	}
	if before.Type == corev1.ServiceTypeLoadBalancer && now.Type != corev1.ServiceTypeLoadBalancer {
		if equal(now.AllocateLoadBalancerNodePorts, before.AllocateLoadBalancerNodePorts) {
			now.AllocateLoadBalancerNodePorts = nil
		}
		if equal(now.LoadBalancerClass, before.LoadBalancerClass) {
			now.LoadBalancerClass = nil
		}
	}
	if reachedFromOutside(old) && !reachedFromOutside(s) && now.ExternalTrafficPolicy == before.ExternalTrafficPolicy {
		now.ExternalTrafficPolicy = ""
	}
}

func equal[T comparable](a, b *T) bool { return apiequality.Semantic.DeepEqual(a, b) }

// nodePorts returns the node ports of the Service's ports, without the one of the health check.
func nodePorts(s *corev1.Service) sets.Set[int32] {
	ports := sets.New[int32]()
	for _, p := range s.Spec.Ports {
		if p.NodePort != 0 {
			ports.Insert(p.NodePort)
		}
	}
	return ports
}
