package kinds_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

//lint:file-ignore SA1019 v1 Endpoints are deprecated, and still served to clients from before EndpointSlices

func TestServices(t *testing.T) {
	of := func(spec string) *corev1.Service {
		return kindtest.Decode[corev1.Service](t, "metadata: {name: a, namespace: ns}\nspec: {"+spec+"}")
	}
	kindtest.Refuses(t, []kindtest.Create{
		{"no ports", of("selector: {app: a}"), []string{"spec.ports: Required value"}},
		{"an unknown type", of("type: Public, ports: [{port: 80}]"), []string{
			`spec.type: Unsupported value: "Public": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"`}},
		{"several ports without names", of("ports: [{port: 80}, {port: 443}]"),
			[]string{"spec.ports[0].name: Required value", "spec.ports[1].name: Required value"}},
		{"a name and a port twice", of("ports: [{name: a, port: 80}, {name: a, port: 80}]"),
			[]string{`spec.ports[1].name: Duplicate value: "a"`, "spec.ports[1]: Duplicate value..."}},
		{"a port for two protocols", of("ports: [{name: a, port: 53}, {name: b, port: 53, protocol: UDP}]"), nil},
		{"a port that is none", of("ports: [{port: 70000, targetPort: Web}]"), []string{
			"spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive",
			`spec.ports[0].targetPort: Invalid value: "Web": must contain only alpha-numeric...`}},
		{"an unknown protocol", of("ports: [{port: 80, protocol: HTTP}]"),
			[]string{`spec.ports[0].protocol: Unsupported value: "HTTP": supported values: "SCTP", "TCP", "UDP"`}},
		{"a node port without being published", of("ports: [{port: 80, nodePort: 30080}]"),
			[]string{"spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"}},
		{"the kubelet, published", of("type: LoadBalancer, ports: [{port: 10250}]"),
			[]string{"spec.ports[0]: Invalid value: 10250: may not expose port 10250 externally since it is used by kubelet"}},
		{"a headless node port", of("type: NodePort, clusterIP: None, ports: [{port: 80}]"),
			[]string{`spec.clusterIP: Invalid value: "None": may not be set to 'None' for NodePort services`}},
		{"an address with leading zeros, which some read as octal", of("clusterIP: 010.0.0.1, ports: [{port: 80}]"),
			[]string{`spec.clusterIP: Invalid value: "010.0.0.1": must not have leading 0s`}},
		{"an external name with an address", of("type: ExternalName, externalName: a.example.com, clusterIPs: [10.0.0.1], ipFamilies: [IPv4], ipFamilyPolicy: SingleStack"), []string{
			"spec.clusterIPs: Forbidden: may not be set for ExternalName services",
			"spec.ipFamilies: Forbidden: may not be set for ExternalName services",
			"spec.ipFamilyPolicy: Forbidden: may not be set for ExternalName services"}},
		{"an external name without a name", of("type: ExternalName"), []string{"spec.externalName: Required value"}},
		{"an external name that ends in a dot", of("type: ExternalName, externalName: a.example.com."), nil},
		{"an external name that is a URL", of("type: ExternalName, externalName: 'https://a'"),
			[]string{`spec.externalName: Invalid value: "https://a": a lowercase RFC 1123 subdomain...`}},
		{"the loopback as an external address", of("ports: [{port: 80}], externalIPs: [127.0.0.1, '::ffff:7f00:1', 169.254.169.254]"), []string{
			`spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`,
			`spec.externalIPs[1]: Invalid value: "::ffff:7f00:1": must not be an IPv4-mapped IPv6 address`,
			`spec.externalIPs[2]: Invalid value: "169.254.169.254": may not be in the link-local range (169.254.0.0/16, fe80::/10)`}},
		{"a traffic policy of a service that is not published", of("ports: [{port: 80}], externalTrafficPolicy: Local"),
			[]string{`spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services`}},
		{"a sticky session of two days", of("ports: [{port: 80}], sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 172800}}"),
			[]string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 172800: must be greater than 0 and less than 86400"}},
		{"source ranges without a load balancer", of("ports: [{port: 80}], loadBalancerSourceRanges: [10.0.0.0/8], loadBalancerClass: example.com/lb"), []string{
			"spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
			"spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'"}},
		{"a source range that is an address", of("type: LoadBalancer, ports: [{port: 80}], loadBalancerSourceRanges: [' 10.0.0.0/8 ', 10.0.0.1]"),
			[]string{`spec.LoadBalancerSourceRanges[1]: Invalid value: "10.0.0.1": must be a valid CIDR value...`}},
		{"a preference nobody knows", of("ports: [{port: 80}], trafficDistribution: Cheapest"),
			[]string{`spec.trafficDistribution: Unsupported value: "Cheapest": supported values: "PreferClose", "PreferSameZone", "PreferSameNode"`}},
		{"a health check port without need", of("ports: [{port: 80}], healthCheckNodePort: 30000"), []string{
			"spec.healthCheckNodePort: Invalid value: 30000: may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"}},
	})
	kindtest.Changes(t, of("clusterIP: 10.0.0.1, ports: [{port: 80}]"), map[string]kindtest.Change[*corev1.Service]{
		"giving the address up for a name": {func(s *corev1.Service) {
			s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "a.example.com", SessionAffinity: "None"}
		}, nil},
	})
	kindtest.Changes(t, of("type: LoadBalancer, ports: [{port: 80}], loadBalancerClass: example.com/a"), map[string]kindtest.Change[*corev1.Service]{
		"another class": {func(s *corev1.Service) { s.Spec.LoadBalancerClass = ptr.To("example.com/b") },
			[]string{`spec.loadBalancerClass: Invalid value: "example.com/b": may not change once set`}},
	})
}

func TestServiceStatus(t *testing.T) {
	stored := kindtest.Decode[corev1.Service](t, "metadata: {name: a, namespace: ns, resourceVersion: '1'}\nspec: {type: LoadBalancer, ports: [{port: 80}]}")
	next := stored.DeepCopy()
	next.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "1.2.3"}, {Hostname: "a_b"}}
	kindtest.Refused(t, kindtest.StatusErrors(next, stored),
		`status.loadBalancer.ingress[0].ip: Invalid value: "1.2.3": must be a valid IP address...`,
		"status.loadBalancer.ingress[0].ipMode: Required value: must be specified when `ip` is set",
		`status.loadBalancer.ingress[1].hostname: Invalid value: "a_b": a lowercase RFC 1123 subdomain...`)
	stored.Spec.Type, next.Spec.Type = corev1.ServiceTypeClusterIP, corev1.ServiceTypeClusterIP
	next.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "a"}}
	kindtest.Refused(t, kindtest.StatusErrors(next, stored),
		"status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'")
}

func TestServiceWarnings(t *testing.T) {
	for spec, want := range map[string]int{
		"clusterIP: None, externalIPs: [10.0.0.1], sessionAffinity: ClientIP": 2,
		"type: ExternalName, externalName: a, externalIPs: [10.0.0.1]":        1,
		"externalName: a, ports: [{port: 80}]":                                1,
	} {
		got := kindtest.Warnings(kindtest.Decode[corev1.Service](t, "metadata: {name: a, namespace: ns}\nspec: {"+spec+"}"))
		if len(got) != want {
			t.Errorf("Warnings(%s) = %q, want %d", spec, got, want)
		}
	}
}
