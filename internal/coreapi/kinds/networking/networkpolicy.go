package networking

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func networkPolicyResource() registry.Resource {
	return registry.Resource{
		Name: "networkpolicies", Singular: "networkpolicy", ShortNames: []string{"netpol"},
		Object: &networkingv1.NetworkPolicy{}, List: &networkingv1.NetworkPolicyList{}, Optional: true, AllowUnconditionalUpdate: true, Generations: true,
		Samples: []string{
			"metadata: {name: a, namespace: ns}\n" +
				"spec: {podSelector: {}, egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}], ports: [{port: 80, endPort: 90}, {port: dns, protocol: UDP}]}]}",
		},
		Rules:    validate.OnUpdate(validateNetworkPolicy, validateNetworkPolicyUpdate).CheckFinalizers(),
		Defaults: defaults.Of(defaultNetworkPolicy),
		Warnings: validate.Warn(networkPolicyWarnings),
		Columns:  networkPolicyColumns,
		Spec:     registry.SpecOf(func(o *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicySpec { return &o.Spec }),
	}
}

func networkPolicyColumns() columns.Printer {
	return columns.Show(func(p *networkingv1.NetworkPolicy, now time.Time) []any {
		return []any{p.Name, metav1.FormatLabelSelector(&p.Spec.PodSelector), columns.AgeOf(p, now)}
	}, columns.Name(), columns.Text("Pod-Selector", networkingv1.NetworkPolicySpec{}.SwaggerDoc()["podSelector"]), columns.Age())
}

// defaultNetworkPolicy sets the policy types to ingress, and to egress if there are rules for it.
func defaultNetworkPolicy(p *networkingv1.NetworkPolicy) {
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
		defaults.Point(&ports[i].Protocol, corev1.ProtocolTCP)
	}
}

func validateNetworkPolicy(p *networkingv1.NetworkPolicy) field.ErrorList {
	errs := validate.ObjectMeta(&p.ObjectMeta, validate.Namespaced, validation.NameIsDNSSubdomain)
	return append(errs, networkPolicySpec(&p.Spec, nil)...)
}

// validateNetworkPolicyUpdate accepts the stored spelling of every block, even if the block has moved.
func validateNetworkPolicyUpdate(p, old *networkingv1.NetworkPolicy) field.ErrorList {
	var stored []string
	for _, block := range ipBlocks(&old.Spec) {
		stored = append(append(stored, block.CIDR), block.Except...)
	}
	return networkPolicySpec(&p.Spec, stored)
}

func ipBlocks(s *networkingv1.NetworkPolicySpec) []*networkingv1.IPBlock {
	var peers []networkingv1.NetworkPolicyPeer
	for _, rule := range s.Ingress {
		peers = append(peers, rule.From...)
	}
	for _, rule := range s.Egress {
		peers = append(peers, rule.To...)
	}
	var blocks []*networkingv1.IPBlock
	for _, peer := range peers {
		if peer.IPBlock != nil {
			blocks = append(blocks, peer.IPBlock)
		}
	}
	return blocks
}

func networkPolicySpec(s *networkingv1.NetworkPolicySpec, stored []string) field.ErrorList {
	path := field.NewPath("spec")
	errs := validate.Selector(&s.PodSelector, path.Child("podSelector"))
	for i, rule := range s.Ingress {
		at := path.Child("ingress").Index(i)
		errs = append(errs, networkRule(rule.Ports, rule.From, at.Child("ports"), at.Child("from"), stored)...)
	}
	for i, rule := range s.Egress {
		at := path.Child("egress").Index(i)
		errs = append(errs, networkRule(rule.Ports, rule.To, at.Child("ports"), at.Child("to"), stored)...)
	}
	if len(s.PolicyTypes) > 2 {
		return append(errs, field.Invalid(path.Child("policyTypes"), s.PolicyTypes, "may not specify more than two policyTypes"))
	}
	for i, kind := range s.PolicyTypes {
		errs = append(errs, validate.OneOf(kind, path.Child("policyTypes").Index(i), networkingv1.PolicyTypeIngress,
			networkingv1.PolicyTypeEgress)...)
	}
	return errs
}

func networkRule(ports []networkingv1.NetworkPolicyPort, peers []networkingv1.NetworkPolicyPeer, portsAt, peersAt *field.Path, stored []string) field.ErrorList {
	errs := validate.Each(ports, portsAt, policyPort)
	for i := range peers {
		errs = append(errs, policyPeer(&peers[i], peersAt.Index(i), stored)...)
	}
	return errs
}

func policyPeer(p *networkingv1.NetworkPolicyPeer, path *field.Path, stored []string) field.ErrorList {
	var errs field.ErrorList
	if p.PodSelector != nil {
		errs = append(errs, validate.Selector(p.PodSelector, path.Child("podSelector"))...)
	}
	if p.NamespaceSelector != nil {
		errs = append(errs, validate.Selector(p.NamespaceSelector, path.Child("namespaceSelector"))...)
	}
	if p.IPBlock != nil {
		errs = append(errs, ipBlock(p.IPBlock, path.Child("ipBlock"), stored)...)
	}
	switch selected := p.PodSelector != nil || p.NamespaceSelector != nil; {
	case !selected && p.IPBlock == nil:
		errs = append(errs, field.Required(path, "must specify a peer"))
	case selected && p.IPBlock != nil:
		errs = append(errs, field.Forbidden(path, "may not specify both ipBlock and another peer"))
	}
	return errs
}

func ipBlock(b *networkingv1.IPBlock, path *field.Path, stored []string) field.ErrorList {
	if b.CIDR == "" {
		return field.ErrorList{field.Required(path.Child("cidr"), "")}
	}
	errs := utilvalidation.IsValidCIDRForLegacyField(path.Child("cidr"), b.CIDR, true, stored)
	_, whole, err := netutils.ParseCIDRSloppy(b.CIDR)
	if err != nil {
		return errs
	}
	for i, value := range b.Except {
		at := path.Child("except").Index(i)
		errs = append(errs, utilvalidation.IsValidCIDRForLegacyField(at, value, true, stored)...)
		_, hole, err := netutils.ParseCIDRSloppy(value)
		if err != nil {
			continue
		}
		wholeBits, _ := whole.Mask.Size()
		holeBits, _ := hole.Mask.Size()
		if !whole.Contains(hole.IP) || wholeBits >= holeBits {
			errs = append(errs, field.Invalid(at, value, "must be a strict subset of `cidr`"))
		}
	}
	return errs
}

// networkPolicyWarnings warns about blocks that are ambiguous or not canonical.
func networkPolicyWarnings(p *networkingv1.NetworkPolicy) []string {
	var warnings []string
	peers := func(list []networkingv1.NetworkPolicyPeer, path *field.Path) {
		for i, peer := range list {
			if peer.IPBlock == nil {
				continue
			}
			at := path.Index(i).Child("ipBlock")
			warnings = append(warnings, utilvalidation.GetWarningsForCIDR(at.Child("cidr"), peer.IPBlock.CIDR)...)
			for j, except := range peer.IPBlock.Except {
				warnings = append(warnings, utilvalidation.GetWarningsForCIDR(at.Child("except").Index(j), except)...)
			}
		}
	}
	for i, rule := range p.Spec.Ingress {
		peers(rule.From, field.NewPath("spec", "ingress").Index(i).Child("from"))
	}
	for i, rule := range p.Spec.Egress {
		peers(rule.To, field.NewPath("spec", "egress").Index(i).Child("to"))
	}
	return slices.Clip(warnings)
}

func policyPort(p *networkingv1.NetworkPolicyPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p.Protocol != nil {
		errs = validate.Protocol(*p.Protocol, path.Child("protocol"))
	}
	port, end := path.Child("port"), path.Child("endPort")
	switch {
	case p.Port == nil && p.EndPort != nil:
		errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is not specified"))
	case p.Port == nil:
	case p.Port.Type == intstr.String:
		if p.EndPort != nil {
			errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is non-numeric"))
		}
		errs = append(errs, validate.Invalid(port, p.Port.StrVal, utilvalidation.IsValidPortName(p.Port.StrVal))...)
	default:
		errs = append(errs, validate.PortNumber(p.Port.IntVal, port)...)
		if p.EndPort == nil {
			break
		}
		if *p.EndPort < p.Port.IntVal {
			errs = append(errs, field.Invalid(end, *p.EndPort, "must be greater than or equal to `port`"))
		}
		errs = append(errs, validate.PortNumber(*p.EndPort, end)...)
	}
	return errs
}
