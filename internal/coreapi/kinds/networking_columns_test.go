package kinds_test

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestNetworkTables(t *testing.T) {
	kindtest.Table[networkingv1.Ingress](t,
		"metadata: {name: bare}",
		"metadata: {name: full}\nspec: {ingressClassName: nginx, tls: [{hosts: [a]}], rules: [{host: a}, {host: b}]}\nstatus: {loadBalancer: {ingress: [{ip: 10.0.0.2}, {hostname: lb.example.com}, {ip: 10.0.0.2}]}}",
		"metadata: {name: many}\nspec: {rules: [{host: a}, {host: b}, {host: c}, {host: d}, {host: e}]}",
		"metadata: {name: any}\nspec: {rules: [{}]}")
	kindtest.Table[networkingv1.IngressClass](t,
		"metadata: {name: a}\nspec: {controller: example.com/c}",
		"metadata: {name: b, annotations: {ingressclass.kubernetes.io/is-default-class: 'true'}}\nspec: {controller: example.com/c, parameters: {apiGroup: example.com, kind: Params, name: p}}")
	kindtest.Table[networkingv1.NetworkPolicy](t, "metadata: {name: all}\nspec: {podSelector: {}}",
		"metadata: {name: some}\nspec: {podSelector: {matchLabels: {app: web}}}")
	kindtest.Table[networkingv1.IPAddress](t,
		"metadata: {name: 10.0.0.1}\nspec: {parentRef: {resource: services, namespace: default, name: kubernetes}}",
		"metadata: {name: 10.0.0.2}\nspec: {parentRef: {group: Example.com, resource: things, name: t}}", "metadata: {name: 10.0.0.3}")
	kindtest.Table[networkingv1.ServiceCIDR](t, "metadata: {name: kubernetes}\nspec: {cidrs: [10.96.0.0/12, 'fd00::/108']}")
}
