package kinds_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
	"portico.dev/internal/fleet/v1alpha1"
)

// clusterWith decodes a Cluster. fields are further fields of the spec, after endpoints and serverName.
func clusterWith(t *testing.T, fields string) *v1alpha1.Cluster {
	t.Helper()
	return kindtest.Decode[v1alpha1.Cluster](t, "metadata: {name: berlin}\nspec:\n  server: {endpoints: [\"192.0.2.1:6443\"], serverName: api.example.com}\n  "+fields)
}

func clusterAt(t *testing.T, server string) *v1alpha1.Cluster {
	t.Helper()
	return kindtest.Decode[v1alpha1.Cluster](t, "metadata: {name: berlin}\nspec: {server: {"+server+"}}")
}

func TestInvalidClustersAreRejected(t *testing.T) {
	const (
		label, subdomain = "a lowercase RFC 1123 label must consist...", "a lowercase RFC 1123 subdomain must consist..."
		prefix           = `must neither begin with "system:" nor be the beginning of "system:", because such names have rights in every cluster`
		unprintable      = "must not contain control characters, nor begin or end with a space"
		apiService       = "must be the name of an APIService, VERSION.GROUP, such as v1beta1.metrics.k8s.io"
		resource         = `must be a resource such as "pods", "pods/exec", "deployments.apps" or "deployments.apps/scale"`
	)
	many := make([]string, 17)
	for i := range many {
		many[i] = fmt.Sprintf(`"192.0.2.1:%d"`, i+1)
	}
	named := clusterWith(t, "")
	named.Name = "a.b"
	kindtest.Refuses(t, []kindtest.Create{
		{"a name that is no label", named, []string{`metadata.name: Invalid value: "a.b": must not contain dots`}},
		{"no endpoint", clusterAt(t, ""), []string{"spec.server.endpoints: Required value: at least one address is needed, such as 192.0.2.1:6443"}},
		{"17 endpoints", clusterAt(t, "endpoints: ["+strings.Join(many, ", ")+"]"), []string{"spec.server.endpoints: Too many: 17: must have at most 16 items"}},
		{"an endpoint twice", clusterAt(t, `endpoints: ["a:1", "a:1"]`), []string{`spec.server.endpoints[1]: Duplicate value: "a:1"`}},
		{"a URL as endpoint", clusterAt(t, `endpoints: ["https://a:1"]`), []string{`spec.server.endpoints[0]: Invalid value: "https://a:1": must be HOST:PORT, such as 192.0.2.1:6443`}},
		{"an endpoint without a port", clusterAt(t, `endpoints: ["a"]`), []string{`spec.server.endpoints[0]: Invalid value: "a": must be HOST:PORT, such as 192.0.2.1:6443`}},
		{"an endpoint with a user", clusterAt(t, `endpoints: ["u@a:1"]`), []string{`spec.server.endpoints[0]: Invalid value: "u@a:1": the host must be a DNS name in lower case, or an IP address`}},
		{"an address with a zone", clusterAt(t, `endpoints: ["[fe80::1%eth0]:1"]`), []string{`spec.server.endpoints[0]: Invalid value: "[fe80::1%eth0]:1": the host must be a DNS name in lower case, or an IP address`}},
		{"port 0", clusterAt(t, `endpoints: ["a:0"]`), []string{`spec.server.endpoints[0]: Invalid value: "a:0": the port must be a number between 1 and 65535`}},
		{"port 65536", clusterAt(t, `endpoints: ["a:65536"]`), []string{`spec.server.endpoints[0]: Invalid value: "a:65536": the port must be a number between 1 and 65535`}},
		{"a port with a zero before it", clusterAt(t, `endpoints: ["a:0443"]`), []string{`spec.server.endpoints[0]: Invalid value: "a:0443": the port must be a number between 1 and 65535`}},
		{"a bundle that is none", clusterAt(t, `endpoints: ["a:1"], caBundle: bm8gY2VydGlmaWNhdGU=`), []string{"spec.server.caBundle: Invalid value: no PEM certificate found; expected at least one CERTIFICATE block"}},
		{
			"a bundle that is not used", clusterAt(t, `endpoints: ["a:1"], caBundle: bm8gY2VydGlmaWNhdGU=, insecureSkipTLSVerify: true`),
			[]string{"spec.server.caBundle: Invalid value: no PEM certificate found...", "spec.server.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present"},
		},
		{"a tunnel outside its directory", clusterAt(t, `endpoints: ["a:1"], tunnel: "../edge"`), []string{`spec.server.tunnel: Invalid value: "../edge": ` + label}},
		{"a server name with a port", clusterAt(t, `endpoints: ["a:1"], serverName: "a:1"`), []string{`spec.server.serverName: Invalid value: "a:1": ` + subdomain}},

		{"a host in upper case", clusterWith(t, "hosts: [A.example.com]"), []string{`spec.hosts[0]: Invalid value: "A.example.com": ` + subdomain}},
		{"a wildcard", clusterWith(t, `hosts: ["*.example.com"]`), []string{`spec.hosts[0]: Invalid value: "*.example.com": ` + subdomain}},
		{"a host that is an address", clusterWith(t, "hosts: [192.0.2.1]"), []string{`spec.hosts[0]: Invalid value: "192.0.2.1": must be a DNS name, not an IP address`}},
		{"a host twice", clusterWith(t, "hosts: [a, a]"), []string{`spec.hosts[1]: Duplicate value: "a"`}},

		{"a Secret without a namespace", clusterWith(t, "credentials: {secret: {name: s}}"), []string{`spec.credentials.secret.namespace: Invalid value: "": ` + label}},
		{"a Secret with another name", clusterWith(t, "credentials: {secret: {namespace: ns, name: ../s}}"), []string{`spec.credentials.secret.name: Invalid value: "../s": ` + subdomain}},

		{"a mode that does not exist", clusterWith(t, "identity: {mode: Trust}"), []string{`spec.identity.mode: Unsupported value: "Trust": supported values: "Impersonate", "FrontProxy"`}},
		{"a token policy that does not exist", clusterWith(t, "identity: {tokens: Some}"), []string{`spec.identity.tokens: Unsupported value: "Some": supported values: "None", "ServiceAccounts", "All"`}},
		{"a system prefix", clusterWith(t, `identity: {userPrefix: "system:a:"}`), []string{`spec.identity.userPrefix: Invalid value: "system:a:": ` + prefix}},
		{"a prefix that a name completes", clusterWith(t, "identity: {groupPrefix: sys}"), []string{`spec.identity.groupPrefix: Invalid value: "sys": ` + prefix}},
		{"a prefix that a header loses", clusterWith(t, `identity: {groupPrefix: " "}`), []string{`spec.identity.groupPrefix: Invalid value: " ": ` + unprintable}},
		{"a prefix with a line break", clusterWith(t, `identity: {userPrefix: "a\nb"}`), []string{`spec.identity.userPrefix: Invalid value: "a\nb": ` + unprintable}},
		{"a system group that is none", clusterWith(t, "identity: {systemGroups: [admins]}"), []string{`spec.identity.systemGroups[0]: Invalid value: "admins": must begin with "system:"; other groups are sent without being listed`}},
		{"a system group without a name", clusterWith(t, `identity: {systemGroups: ["system:"]}`), []string{`spec.identity.systemGroups[0]: Invalid value: "system:": must begin with "system:"; other groups are sent without being listed`}},

		{"the core group", clusterWith(t, "apiServices: [v1.]"), []string{`spec.apiServices[0]: Invalid value: "v1.": ` + apiService}},
		{"a version without a group", clusterWith(t, "apiServices: [v1]"), []string{`spec.apiServices[0]: Invalid value: "v1": ` + apiService}},
		{"a version that is none", clusterWith(t, "apiServices: [1.metrics.k8s.io]"), []string{`spec.apiServices[0]: Invalid value: "1.metrics.k8s.io": ` + apiService}},
		{"a path", clusterWith(t, "apiServices: [v1.a/b]"), []string{`spec.apiServices[0]: Invalid value: "v1.a/b": ` + apiService}},
		{"an APIService twice", clusterWith(t, "apiServices: [v1.a, v1.a]"), []string{`spec.apiServices[1]: Duplicate value: "v1.a"`}},

		{"no places", clusterWith(t, "limits: {maxRequestsInFlight: 0}"), []string{"spec.limits.maxRequestsInFlight: Invalid value: 0: must be between 1 and 1000000"}},
		{
			"a rate of nothing", clusterWith(t, "limits: {rates: [{name: A, requestsPerSecond: 0, burst: -1}]}"),
			[]string{
				`spec.limits.rates[0].name: Invalid value: "A": ` + label,
				"spec.limits.rates[0].requestsPerSecond: Invalid value: 0: must be between 1 and 1000000",
				"spec.limits.rates[0].burst: Invalid value: -1: must be between 1 and 1000000",
			},
		},
		{
			"shared resources that do not exist, for times that are too long", clusterWith(t, "shared: [{resources: [pods/log, \"*\"], maxAge: 6m, staleIfError: -1s}, {resources: [], maxAge: 0s}]"),
			[]string{
				`spec.shared[0].resources[0]: Invalid value: "pods/log": responses of subresources are not shared`, `spec.shared[0].resources[1]: Invalid value: "*": ` + resource,
				`spec.shared[0].maxAge: Invalid value: "6m0s": must be between 0s and 5m0s`, `spec.shared[0].staleIfError: Invalid value: "-1s": must be between 0s and 24h0m0s`,
				"spec.shared[1].resources: Required value: at least one resource is needed, such as pods",
			},
		},
		{"a rate twice", clusterWith(t, "limits: {rates: [{name: a, requestsPerSecond: 1}, {name: a, requestsPerSecond: 1}]}"), []string{`spec.limits.rates[1].name: Duplicate value: "a"`}},
		{
			"conditions that no request fulfils", clusterWith(t, `limits: {rates: [{name: a, requestsPerSecond: 1, users: [""], verbs: ["*"], resources: ["*", pods/, deployments/scale.apps], namespaces: [a/b]}]}`),
			[]string{
				"spec.limits.rates[0].users[0]: Required value", `spec.limits.rates[0].verbs[0]: Invalid value: "*": ` + label,
				`spec.limits.rates[0].resources[0]: Invalid value: "*": ` + resource, `spec.limits.rates[0].resources[1]: Invalid value: "pods/": ` + resource,
				`spec.limits.rates[0].resources[2]: Invalid value: "deployments/scale.apps": ` + resource,
				`spec.limits.rates[0].namespaces[0]: Invalid value: "a/b": ` + label,
			},
		},

		{"maintenance without a mode", clusterWith(t, "maintenance: {message: a}"), []string{"spec.maintenance.mode: Required value"}},
		{"maintenance of another mode", clusterWith(t, "maintenance: {mode: Slow}"), []string{`spec.maintenance.mode: Unsupported value: "Slow": supported values: "ReadOnly", "Closed"`}},
		{"a long message", clusterWith(t, "maintenance: {mode: Closed, message: "+strings.Repeat("a", 1025)+"}"), []string{"spec.maintenance.message: Too long: may not be more than 1024 bytes"}},
	})
	kindtest.Changes(t, clusterWith(t, ""), map[string]kindtest.Change[*v1alpha1.Cluster]{
		"no endpoint left": {func(c *v1alpha1.Cluster) { c.Spec.Server.Endpoints = nil }, []string{"spec.server.endpoints: Required value: at least one address is needed, such as 192.0.2.1:6443"}},
	})
	stored := clusterWith(t, "")
	stored.ResourceVersion = "1"
	changed := stored.DeepCopy()
	changed.Status.Conditions = []metav1.Condition{{Type: "Available", Status: "Perhaps", Reason: "X", LastTransitionTime: metav1.Now()}}
	changed.Status.Endpoints = []v1alpha1.EndpointStatus{{Address: "a:1"}, {Address: "a:1"}}
	kindtest.Refused(t, kindtest.StatusErrors(changed, stored), `status.conditions[0].status: Unsupported value: "Perhaps": supported values: "False", "True", "Unknown"`,
		`status.endpoints[1]: Duplicate value: "a:1"`)
}

func TestWarningsOfClusters(t *testing.T) {
	for server, want := range map[string]string{
		`endpoints: ["a:1"]`:                              "spec.server.caBundle is empty: ",
		`endpoints: ["a:1"], insecureSkipTLSVerify: true`: "spec.server.insecureSkipTLSVerify: any server at the addresses",
	} {
		if got := kindtest.Warnings(clusterAt(t, server)); len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("Warnings of {%s} = %q, want one with the prefix %q", server, got, want)
		}
	}
	got := kindtest.Warnings(clusterWith(t, `identity: {systemGroups: ["system:masters", "system:nodes"]}`))
	want := []string{
		"spec.identity.systemGroups: members of system:masters at the front door have all rights in the cluster",
		"spec.identity.systemGroups: members of system:nodes at the front door have the rights of system:nodes in the cluster",
	}
	if !slices.Equal(got, want) {
		t.Errorf("Warnings = %q, want %q", got, want)
	}
}

func TestClusterDefaults(t *testing.T) {
	const rest = "credentials: {}, identity: {mode: Impersonate, tokens: ServiceAccounts}"
	kindtest.Defaults(t, []kindtest.Default{
		{
			"nothing but endpoints", &v1alpha1.Cluster{},
			`spec: {server: {endpoints: ["a:1"]}}`,
			`{metadata: {}, spec: {server: {endpoints: ["a:1"], serverName: kubernetes.default.svc}, limits: {maxRequestsInFlight: 400}, ` + rest + `}, status: {}}`,
		},
		{
			"bursts", &v1alpha1.Cluster{},
			"spec: {server: {endpoints: [], serverName: a}, limits: {maxRequestsInFlight: 1, rates: [{name: a, requestsPerSecond: 5}, {name: b, requestsPerSecond: 5, burst: 1}]}}",
			"{metadata: {}, spec: {server: {endpoints: [], serverName: a}, limits: {maxRequestsInFlight: 1, rates: [{name: a, requestsPerSecond: 5, burst: 5}, {name: b, requestsPerSecond: 5, burst: 1}]}, " + rest + "}, status: {}}",
		},
	})
}

func TestTableOfClusters(t *testing.T) {
	const spec = "spec: {hosts: [b.example.com, c.example.com], server: {endpoints: [\"a:1\", \"b:1\", \"c:1\"]}}\n"
	kindtest.Table[v1alpha1.Cluster](t,
		"metadata: {name: new}\nspec: {server: {endpoints: [\"a:1\"]}}",
		"metadata: {name: good}\n"+spec+"status: {version: v1.37.1, conditions: [{type: Available, status: \"True\", reason: Ready}], endpoints: [{address: \"a:1\", ready: true}, {address: \"b:1\", ready: true}, {address: \"c:1\"}, {address: \"removed:1\", ready: true}]}",
		"metadata: {name: lost}\n"+spec+"status: {conditions: [{type: Available, status: \"False\", reason: NoEndpointReady}]}")
}
