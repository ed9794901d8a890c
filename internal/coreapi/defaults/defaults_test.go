package defaults_test

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/yaml"
)

//lint:file-ignore SA1019 v1 Endpoints are deprecated, and still served to clients from before EndpointSlices

// Every case says what a client writes and, in full, what the server makes of it.
func TestDefaults(t *testing.T) {
	const hook = "name: a.example.com, clientConfig: {service: {name: s, namespace: ns}}, rules: [{operations: ['*']}]"
	const hookWant = "admissionReviewVersions: null, name: a.example.com, clientConfig: {service: {name: s, namespace: ns, port: 443}}, " +
		"rules: [{operations: ['*'], scope: '*'}], failurePolicy: Fail, matchPolicy: Equivalent, namespaceSelector: {}, " +
		"objectSelector: {}, sideEffects: null, timeoutSeconds: 10"
	const matched = "matchPolicy: Equivalent, namespaceSelector: {}, objectSelector: {}"
	for _, c := range []struct {
		situation string
		obj       runtime.Object
		in, want  string
	}{
		{"a namespace can be selected by its name", &corev1.Namespace{}, "metadata: {name: a}",
			"metadata: {name: a, labels: {kubernetes.io/metadata.name: a}}\nspec: {}\nstatus: {phase: Active}"},
		{"a label with another namespace's name", &corev1.Namespace{}, "metadata: {name: a, labels: {kubernetes.io/metadata.name: kube-system, b: c}}",
			"metadata: {name: a, labels: {kubernetes.io/metadata.name: a, b: c}}\nspec: {}\nstatus: {phase: Active}"},
		{"a namespace whose name is still to be made", &corev1.Namespace{}, "metadata: {generateName: a-}\nstatus: {phase: Terminating}",
			"metadata: {generateName: a-}\nspec: {}\nstatus: {phase: Terminating}"},
		{"stringData wins over data and is gone", &corev1.Secret{}, "data: {a: AAAA, b: BBBB}\nstringData: {b: hi}",
			"metadata: {}\ntype: Opaque\ndata: {a: AAAA, b: aGk=}"},
		{"a secret of a type", &corev1.Secret{}, "type: kubernetes.io/tls\nstringData: {tls.crt: ''}",
			"metadata: {}\ntype: kubernetes.io/tls\ndata: {tls.crt: ''}"},
		{"a service of one port, with no address given to it", &corev1.Service{}, "spec: {ports: [{port: 80}]}",
			"metadata: {}\nspec: {type: ClusterIP, sessionAffinity: None, internalTrafficPolicy: Cluster, ports: [{port: 80, protocol: TCP, targetPort: 80}]}\nstatus: {loadBalancer: {}}"},
		{"a service by another name", &corev1.Service{}, "spec: {type: ExternalName, externalName: localhost, ports: [{port: 443, targetPort: web, protocol: UDP}]}",
			"metadata: {}\nspec: {type: ExternalName, externalName: localhost, sessionAffinity: None, ports: [{port: 443, protocol: UDP, targetPort: web}]}\nstatus: {loadBalancer: {}}"},
		{"a load balancer with sticky clients", &corev1.Service{}, "spec: {type: LoadBalancer, sessionAffinity: ClientIP}\nstatus: {loadBalancer: {ingress: [{ip: 1.2.3.4}, {hostname: a}]}}",
			"metadata: {}\nspec: {type: LoadBalancer, sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 10800}}, internalTrafficPolicy: Cluster, " +
				"externalTrafficPolicy: Cluster, allocateLoadBalancerNodePorts: true}\nstatus: {loadBalancer: {ingress: [{ip: 1.2.3.4, ipMode: VIP}, {hostname: a}]}}"},
		{"a service that is not sticky after all", &corev1.Service{}, "spec: {externalIPs: [10.0.0.1], sessionAffinityConfig: {clientIP: {timeoutSeconds: 5}}}",
			"metadata: {}\nspec: {type: ClusterIP, externalIPs: [10.0.0.1], externalTrafficPolicy: Cluster, internalTrafficPolicy: Cluster, sessionAffinity: None}\nstatus: {loadBalancer: {}}"},
		{"endpoints", &corev1.Endpoints{}, "subsets: [{ports: [{port: 80}, {port: 53, protocol: UDP}]}]",
			"metadata: {}\nsubsets: [{ports: [{port: 80, protocol: TCP}, {port: 53, protocol: UDP}]}]"},
		{"a slice of endpoints", &discoveryv1.EndpointSlice{}, "ports: [{port: 80}]",
			"metadata: {}\naddressType: ''\nendpoints: null\nports: [{name: '', port: 80, protocol: TCP}]"},
		{"a node offers what it has, in thousandths", &corev1.Node{}, "status: {capacity: {cpu: 2000001u}}",
			"metadata: {}\nspec: {}\nstatus: {capacity: {cpu: 2001m}, allocatable: {cpu: 2001m}, daemonEndpoints: {kubeletEndpoint: {Port: 0}}, nodeInfo: " +
				"{architecture: '', bootID: '', containerRuntimeVersion: '', kernelVersion: '', kubeProxyVersion: '', kubeletVersion: '', machineID: '', operatingSystem: '', osImage: '', systemUUID: ''}}"},
		{"an APIService", &apiregistrationv1.APIService{}, "spec: {service: {name: s}}",
			"metadata: {}\nspec: {service: {name: s, port: 443}, groupPriorityMinimum: 0, versionPriority: 0}\nstatus: {}"},
		{"a local APIService", &apiregistrationv1.APIService{}, "spec: {version: v1}",
			"metadata: {}\nspec: {version: v1, groupPriorityMinimum: 0, versionPriority: 0}\nstatus: {}"},
		{"who a role is given to", &rbacv1.RoleBinding{}, "roleRef: {kind: Role, name: r}\nsubjects: [{kind: User, name: u}, {kind: Group, name: g}, {kind: ServiceAccount, name: s}]",
			"metadata: {}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}\nsubjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: u}, " +
				"{apiGroup: rbac.authorization.k8s.io, kind: Group, name: g}, {kind: ServiceAccount, name: s}]"},
		{"a cluster role given to nobody yet", &rbacv1.ClusterRoleBinding{}, "roleRef: {kind: ClusterRole, name: r}",
			"metadata: {}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: r}"},
		{"a flow", &flowcontrolv1.FlowSchema{}, "spec: {}",
			"metadata: {}\nspec: {matchingPrecedence: 1000, priorityLevelConfiguration: {name: ''}}\nstatus: {}"},
		{"a priority level that queues", &flowcontrolv1.PriorityLevelConfiguration{}, "spec: {type: Limited, limited: {limitResponse: {type: Queue, queuing: {queues: 2}}}}",
			"metadata: {}\nspec: {type: Limited, limited: {nominalConcurrencyShares: 30, lendablePercent: 0, limitResponse: {type: Queue, queuing: {queues: 2, handSize: 8, queueLengthLimit: 50}}}}\nstatus: {}"},
		{"a priority level with no shares on purpose", &flowcontrolv1.PriorityLevelConfiguration{}, "spec: {limited: {nominalConcurrencyShares: 0}, exempt: {}}",
			"metadata: {}\nspec: {type: '', limited: {nominalConcurrencyShares: 0, lendablePercent: 0, limitResponse: {type: ''}}, exempt: {nominalConcurrencyShares: 0, lendablePercent: 0}}\nstatus: {}"},
		{"a validating webhook", &admissionregistrationv1.ValidatingWebhookConfiguration{}, "webhooks: [{" + hook + "}]",
			"metadata: {}\nwebhooks: [{" + hookWant + "}]"},
		{"a mutating webhook", &admissionregistrationv1.MutatingWebhookConfiguration{}, "webhooks: [{" + hook + "}]",
			"metadata: {}\nwebhooks: [{" + hookWant + ", reinvocationPolicy: Never}]"},
		{"a policy, whose selectors the library cannot do without", &admissionregistrationv1.ValidatingAdmissionPolicy{},
			"spec: {matchConstraints: {resourceRules: [{operations: ['*']}], excludeResourceRules: [{scope: Cluster}]}}",
			"metadata: {}\nspec: {failurePolicy: Fail, matchConstraints: {" + matched + ", resourceRules: [{operations: ['*'], scope: '*'}], excludeResourceRules: [{scope: Cluster}]}}\nstatus: {}"},
		{"a mutating policy", &admissionregistrationv1.MutatingAdmissionPolicy{}, "spec: {matchConstraints: {}}",
			"metadata: {}\nspec: {failurePolicy: Fail, matchConstraints: {" + matched + "}}"},
		{"a binding that narrows its policy", &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, "spec: {matchResources: {}}",
			"metadata: {}\nspec: {matchResources: {" + matched + "}}"},
		{"a binding that does not", &admissionregistrationv1.MutatingAdmissionPolicyBinding{}, "spec: {policyName: p}",
			"metadata: {}\nspec: {policyName: p}"},
	} {
		t.Run(c.situation, func(t *testing.T) { fill(t, c.obj, c.in, c.want) })
	}
}

// fill defaults an object twice: the second time, as when it is read from storage, must change nothing.
func fill(t *testing.T, obj runtime.Object, in, want string) {
	t.Helper()
	scheme := runtime.NewScheme()
	register(scheme)
	if err := yaml.UnmarshalStrict([]byte(in), obj); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"once", "twice"} {
		scheme.Default(obj)
		got, err := yaml.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		if normal := normalize(t, want); string(got) != normal {
			t.Errorf("%s: got\n%s\nwant\n%s", when, got, normal)
		}
	}
}

// normalize writes YAML the way that the encoder does, so that two documents can be compared as text.
func normalize(t *testing.T, document string) string {
	t.Helper()
	var parsed map[string]any
	if err := yaml.Unmarshal([]byte(document), &parsed); err != nil {
		t.Fatalf("%v in\n%s", err, document)
	}
	out, err := yaml.Marshal(parsed)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestListsAreDefaultedByItem(t *testing.T) {
	scheme := runtime.NewScheme()
	register(scheme)
	list := &corev1.ServiceList{Items: make([]corev1.Service, 2)}
	scheme.Default(list)
	for _, service := range list.Items {
		if service.Spec.Type != corev1.ServiceTypeClusterIP {
			t.Errorf("got type %q", service.Spec.Type)
		}
	}
}
