package defaults

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
)

// DefaultPodCertificateRequest lasts a day.
func DefaultPodCertificateRequest(r *certificatesv1.PodCertificateRequest) {
	point(&r.Spec.MaxExpirationSeconds, 24*3600)
}

// DefaultLimitRange gives containers the defaults that follow from the bounds: a container that says nothing is limited to
// the most that it may have, and requests what it is limited to.
func DefaultLimitRange(l *corev1.LimitRange) {
	for i := range l.Spec.Limits {
		item := &l.Spec.Limits[i]
		for _, list := range []corev1.ResourceList{item.Max, item.Min, item.Default, item.DefaultRequest, item.MaxLimitRequestRatio} {
			milli(list)
		}
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		complete(&item.Default, item.Max)
		complete(&item.DefaultRequest, item.Default)
		complete(&item.DefaultRequest, item.Min)
	}
}

// complete takes over from another list what the first one does not say.
func complete(list *corev1.ResourceList, from corev1.ResourceList) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	for name, quantity := range from {
		if _, said := (*list)[name]; !said {
			(*list)[name] = quantity.DeepCopy()
		}
	}
}

func DefaultResourceQuota(q *corev1.ResourceQuota) {
	milli(q.Spec.Hard)
	milli(q.Status.Hard)
	milli(q.Status.Used)
}

// DefaultNetworkPolicy is about ingress at least, and about egress when it has rules for it.
func DefaultNetworkPolicy(p *networkingv1.NetworkPolicy) {
	for i := range p.Spec.Ingress {
		policyPorts(p.Spec.Ingress[i].Ports)
	}
	for i := range p.Spec.Egress {
		policyPorts(p.Spec.Egress[i].Ports)
	}
	if len(p.Spec.PolicyTypes) > 0 {
		return
	}
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	if len(p.Spec.Egress) > 0 {
		p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
	}
}

func policyPorts(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		point(&ports[i].Protocol, corev1.ProtocolTCP)
	}
}

func DefaultIngressClass(c *networkingv1.IngressClass) {
	if c.Spec.Parameters != nil {
		point(&c.Spec.Parameters.Scope, networkingv1.IngressClassParametersReferenceScopeCluster)
	}
}

func DefaultPriorityClass(c *schedulingv1.PriorityClass) {
	point(&c.PreemptionPolicy, corev1.PreemptLowerPriority)
}

func DefaultRuntimeClass(c *nodev1.RuntimeClass) {
	if c.Overhead != nil {
		milli(c.Overhead.PodFixed)
	}
}
