package kinds_test

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestInvalidNetworkingObjectsAreRejected(t *testing.T) {
	ingress := func(spec string) *networkingv1.Ingress {
		return kindtest.Decode[networkingv1.Ingress](t, "metadata: {name: a, namespace: ns}\nspec: "+spec)
	}
	path := func(p string) *networkingv1.Ingress {
		return ingress("{rules: [{http: {paths: [" + p + "]}}]}")
	}
	const backend = "backend: {service: {name: s, port: {number: 80}}}"
	policy := func(rule string) *networkingv1.NetworkPolicy {
		return kindtest.Decode[networkingv1.NetworkPolicy](t, "metadata: {name: a, namespace: ns}\nspec: {podSelector: {}, ingress: ["+rule+"]}")
	}
	kindtest.Refuses(t, []kindtest.Create{
		{"an ingress to nowhere", ingress("{}"), []string{"spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"}},
		{"a host that is an address", ingress("{rules: [{host: 10.0.0.1}]}"), []string{`spec.rules[0].host: Invalid value: "10.0.0.1": must be a DNS name, not an IP address`}},
		{"a star in the middle", ingress("{rules: [{host: a.*.com}]}"), []string{`spec.rules[0].host: Invalid value: "a.*.com": a wildcard DNS-1123 subdomain must start with...`}},
		{"a path of no type", path("{path: /a, " + backend + "}"), []string{"spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified"}},
		{"a path with two readings", path("{path: /a/../b, pathType: Exact, " + backend + "}"), []string{`spec.rules[0].http.paths[0].path: Invalid value: "/a/../b": must not contain '/../'`}},
		{"an encoded slash", path("{path: /a%2fb, pathType: Prefix, " + backend + "}"), []string{`spec.rules[0].http.paths[0].path: Invalid value: "/a%2fb": must not contain '%2f'`}},
		{"a relative path", path("{path: a, pathType: ImplementationSpecific, " + backend + "}"), []string{`spec.rules[0].http.paths[0].path: Invalid value: "a": must be an absolute path`}},
		{"a type that does not exist", path("{path: a, pathType: Regex, " + backend + "}"), []string{`spec.rules[0].http.paths[0].pathType: Unsupported value: "Regex": supported values: "Exact", "ImplementationSpecific", "Prefix"`}},
		{"no port", path("{path: /, pathType: Prefix, backend: {service: {name: s}}}"), []string{"spec.rules[0].http.paths[0].backend: Required value: port name or number is required"}},
		{"two backends", path("{path: /, pathType: Prefix, backend: {service: {name: s}, resource: {kind: K, name: r}}}"), []string{`spec.rules[0].http.paths[0].backend: Invalid value: "": cannot set both resource and service backends`}},
		{"two classes", func() *networkingv1.Ingress {
			i := ingress("{ingressClassName: a, defaultBackend: {service: {name: s, port: {number: 1}}}}")
			i.Annotations = map[string]string{"kubernetes.io/ingress.class": "b"}
			return i
		}(), []string{"annotations.kubernetes.io/ingress.class: Invalid value: \"b\": must match `ingressClassName` when both are specified"}},
		{"parameters in a namespace that is not named", kindtest.Decode[networkingv1.IngressClass](t, "metadata: {name: a}\nspec: {controller: example.com/c, parameters: {kind: K, name: n, scope: Namespace}}"),
			[]string{"spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'"}},
		{"a peer that is nobody", policy("{from: [{}]}"), []string{"spec.ingress[0].from[0]: Required value: must specify a peer"}},
		{"a hole outside the block", policy("{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [192.168.0.0/16]}}]}"), []string{`spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: "192.168.0.0/16": must be a strict subset of ` + "`cidr`"}},
		{"a range without a start", policy("{ports: [{endPort: 10}]}"), []string{"spec.ingress[0].ports[0].endPort: Invalid value: 10: may not be specified when `port` is not specified"}},
		{"a range that ends before it starts", policy("{ports: [{port: 20, endPort: 10}]}"), []string{"spec.ingress[0].ports[0].endPort: Invalid value: 10: must be greater than or equal to `port`"}},
		{"an address that is spelt another way too", kindtest.Decode[networkingv1.IPAddress](t, "metadata: {name: 'FD00::1'}\nspec: {}"),
			[]string{`metadata.name: Invalid value: "FD00::1": must be in canonical form ("fd00::1")`, "spec.parentRef: Required value"}},
		{"two ranges of one family", kindtest.Decode[networkingv1.ServiceCIDR](t, "metadata: {name: a}\nspec: {cidrs: [10.0.0.0/24, 10.1.0.0/24]}"), []string{"spec.cidrs: Invalid value: ..."}},
	})
	kindtest.Changes(t, kindtest.Decode[networkingv1.ServiceCIDR](t, "metadata: {name: a}\nspec: {cidrs: [10.0.0.0/24]}"), map[string]kindtest.Change[*networkingv1.ServiceCIDR]{
		"the other family too": {func(c *networkingv1.ServiceCIDR) { c.Spec.CIDRs = append(c.Spec.CIDRs, "fd00::/108") }, nil},
		"another range":        {func(c *networkingv1.ServiceCIDR) { c.Spec.CIDRs[0] = "10.1.0.0/24" }, []string{`spec.cidrs[0]: Invalid value: "10.1.0.0/24": field is immutable`}},
		"no range":             {func(c *networkingv1.ServiceCIDR) { c.Spec.CIDRs = nil }, []string{"spec.cidrs: Invalid value: ..."}},
	})
	old := policy("{from: [{ipBlock: {cidr: 010.0.0.0/8}}]}")
	kindtest.Changes(t, old, map[string]kindtest.Change[*networkingv1.NetworkPolicy]{
		"a block of old spelling stays": {func(p *networkingv1.NetworkPolicy) { p.Spec.PodSelector.MatchLabels = map[string]string{"a": "b"} }, nil},
		"a new one of that spelling":    {func(p *networkingv1.NetworkPolicy) { p.Spec.Ingress[0].From[0].IPBlock.CIDR = "011.0.0.0/8" }, []string{"spec.ingress[0].from[0].ipBlock.cidr: Invalid value: ..."}},
	})
	lb := ingress("{defaultBackend: {service: {name: s, port: {number: 1}}}}")
	lb.ResourceVersion = "1"
	bad := lb.DeepCopy()
	bad.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "nowhere"}, {Hostname: "10.0.0.1"}}
	kindtest.Refused(t, kindtest.StatusErrors(bad, lb), "status.loadBalancer.ingress[0].ip: Invalid value: ...",
		`status.loadBalancer.ingress[1].hostname: Invalid value: "10.0.0.1": must be a DNS name, not an IP address`)
}
