package coreapi

import (
	networkingv1 "k8s.io/api/networking/v1"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/validate"
)

func ingressResource() resource {
	return resource{
		name: "ingresses", singular: "ingress", shortNames: []string{"ing"},
		object: &networkingv1.Ingress{}, list: &networkingv1.IngressList{}, directory: "ingress",
		rules:    validate.Full(validate.ValidateIngress, validate.ValidateIngressUpdate, validate.ValidateIngressStatus),
		warnings: validate.Warn(validate.IngressWarnings),
		columns:  columns.IngressColumns,
		cached:   true, blindUpdate: true, generations: true,
		spec:   specOf(func(o *networkingv1.Ingress) *networkingv1.IngressSpec { return &o.Spec }),
		status: statusOf(func(o *networkingv1.Ingress) *networkingv1.IngressStatus { return &o.Status }), statusMeta: true,
	}
}

func ingressClassResource() resource {
	return resource{
		name: "ingressclasses", singular: "ingressclass", clusterScoped: true,
		object: &networkingv1.IngressClass{}, list: &networkingv1.IngressClassList{}, blindUpdate: true, generations: true,
		rules:    validate.Changing(validate.ValidateIngressClass, validate.ValidateIngressClassUpdate),
		defaults: defaults.Of(defaults.DefaultIngressClass),
		columns:  columns.IngressClassColumns,
		spec:     specOf(func(o *networkingv1.IngressClass) *networkingv1.IngressClassSpec { return &o.Spec }),
	}
}

func networkPolicyResource() resource {
	return resource{
		name: "networkpolicies", singular: "networkpolicy", shortNames: []string{"netpol"},
		object: &networkingv1.NetworkPolicy{}, list: &networkingv1.NetworkPolicyList{}, blindUpdate: true, generations: true,
		rules:    validate.Changing(validate.ValidateNetworkPolicy, validate.ValidateNetworkPolicyUpdate),
		defaults: defaults.Of(defaults.DefaultNetworkPolicy),
		warnings: validate.Warn(validate.NetworkPolicyWarnings),
		columns:  columns.NetworkPolicyColumns,
		spec:     specOf(func(o *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicySpec { return &o.Spec }),
	}
}

func ipAddressResource() resource {
	return resource{
		name: "ipaddresses", singular: "ipaddress", shortNames: []string{"ip"}, clusterScoped: true,
		object: &networkingv1.IPAddress{}, list: &networkingv1.IPAddressList{}, cached: true, blindUpdate: true,
		rules:   validate.Changing(validate.ValidateIPAddress, validate.ValidateIPAddressUpdate),
		columns: columns.IPAddressColumns,
		spec:    specOf(func(o *networkingv1.IPAddress) *networkingv1.IPAddressSpec { return &o.Spec }),
	}
}

func serviceCIDRResource() resource {
	return resource{
		name: "servicecidrs", singular: "servicecidr", clusterScoped: true,
		object: &networkingv1.ServiceCIDR{}, list: &networkingv1.ServiceCIDRList{}, cached: true, blindUpdate: true,
		rules:   validate.Changing(validate.ValidateServiceCIDR, validate.ValidateServiceCIDRUpdate),
		columns: columns.ServiceCIDRColumns,
		spec:    specOf(func(o *networkingv1.ServiceCIDR) *networkingv1.ServiceCIDRSpec { return &o.Spec }),
		status:  statusOf(func(o *networkingv1.ServiceCIDR) *networkingv1.ServiceCIDRStatus { return &o.Status }),
	}
}
