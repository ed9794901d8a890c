package coreapi

import networkingv1 "k8s.io/api/networking/v1"

func networkingResources() []resource {
	return []resource{
		{
			name: "ingresses", singular: "ingress", shortNames: []string{"ing"},
			object: &networkingv1.Ingress{}, list: &networkingv1.IngressList{}, directory: "ingress",
			cached: true, blindUpdate: true, generations: true,
			spec:   specOf(func(o *networkingv1.Ingress) *networkingv1.IngressSpec { return &o.Spec }),
			status: statusOf(func(o *networkingv1.Ingress) *networkingv1.IngressStatus { return &o.Status }), statusMeta: true,
		},
		{
			name: "ingressclasses", singular: "ingressclass", clusterScoped: true,
			object: &networkingv1.IngressClass{}, list: &networkingv1.IngressClassList{}, blindUpdate: true, generations: true,
			spec: specOf(func(o *networkingv1.IngressClass) *networkingv1.IngressClassSpec { return &o.Spec }),
		},
		{
			name: "networkpolicies", singular: "networkpolicy", shortNames: []string{"netpol"},
			object: &networkingv1.NetworkPolicy{}, list: &networkingv1.NetworkPolicyList{}, blindUpdate: true, generations: true,
			spec: specOf(func(o *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicySpec { return &o.Spec }),
		},
		{
			name: "ipaddresses", singular: "ipaddress", shortNames: []string{"ip"}, clusterScoped: true,
			object: &networkingv1.IPAddress{}, list: &networkingv1.IPAddressList{}, cached: true, blindUpdate: true,
			spec: specOf(func(o *networkingv1.IPAddress) *networkingv1.IPAddressSpec { return &o.Spec }),
		},
		{
			name: "servicecidrs", singular: "servicecidr", clusterScoped: true,
			object: &networkingv1.ServiceCIDR{}, list: &networkingv1.ServiceCIDRList{}, cached: true, blindUpdate: true,
			spec:   specOf(func(o *networkingv1.ServiceCIDR) *networkingv1.ServiceCIDRSpec { return &o.Spec }),
			status: statusOf(func(o *networkingv1.ServiceCIDR) *networkingv1.ServiceCIDRStatus { return &o.Status }),
		},
	}
}
