package columns_test

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

//lint:file-ignore SA1019 v1 Endpoints are deprecated, and still served to clients from before EndpointSlices

// each decodes several manifests of one kind.
func each[T any, P interface {
	*T
	runtime.Object
}](t *testing.T, manifests ...string) []runtime.Object {
	var objects []runtime.Object
	for _, manifest := range manifests {
		objects = append(objects, decode(t, P(new(T)), manifest))
	}
	return objects
}

func TestCoreTables(t *testing.T) {
	core := func(kind string) schema.GroupKind { return schema.GroupKind{Kind: kind} }
	golden(t, core("Namespace"), each[corev1.Namespace](t,
		"metadata: {name: default}\nstatus: {phase: Active}", "metadata: {name: old}\nstatus: {phase: Terminating}")...)
	golden(t, core("ConfigMap"), each[corev1.ConfigMap](t,
		"metadata: {name: empty}", "metadata: {name: a}\ndata: {x: '1', y: '2'}\nbinaryData: {z: AAAA}")...)
	golden(t, core("Secret"), each[corev1.Secret](t,
		"metadata: {name: a}\ntype: Opaque", "metadata: {name: b}\ntype: kubernetes.io/tls\ndata: {tls.crt: AAAA, tls.key: AAAA}")...)
	golden(t, core("ServiceAccount"), each[corev1.ServiceAccount](t,
		"metadata: {name: default}", "metadata: {name: old}\nsecrets: [{name: token}]")...)
	golden(t, core("Service"), each[corev1.Service](t,
		"metadata: {name: kubernetes}\nspec: {type: ClusterIP, clusterIP: 10.0.0.1, ports: [{port: 443, protocol: TCP}]}",
		"metadata: {name: headless}\nspec: {type: ClusterIP, clusterIP: None, selector: {app: db, tier: a}}",
		"metadata: {name: outside}\nspec: {type: ClusterIP, clusterIP: 10.0.0.2, externalIPs: [192.0.2.1, 192.0.2.2], ports: [{port: 1, protocol: UDP}]}",
		"metadata: {name: elsewhere}\nspec: {type: ExternalName, externalName: db.example.com}",
		"metadata: {name: nodeport}\nspec: {type: NodePort, clusterIP: 10.0.0.3, ports: [{port: 80, nodePort: 30080, protocol: TCP}, {port: 53, protocol: UDP}]}",
		"metadata: {name: pending}\nspec: {type: LoadBalancer, clusterIP: 10.0.0.4, ports: [{port: 80, protocol: TCP}]}",
		"metadata: {name: balanced}\nspec: {type: LoadBalancer, clusterIP: 10.0.0.5, externalIPs: [192.0.2.9], ports: [{port: 80, protocol: TCP}]}\n"+
			"status: {loadBalancer: {ingress: [{hostname: lb.example.com}, {ip: 192.0.2.7}, {ip: 192.0.2.7}]}}",
		"metadata: {name: odd}")...)
	golden(t, core("Endpoints"), each[corev1.Endpoints](t,
		"metadata: {name: none}",
		"metadata: {name: unready}\nsubsets: [{notReadyAddresses: [{ip: 10.0.0.1}], ports: [{port: 80}]}]",
		"metadata: {name: three}\nsubsets: [{addresses: [{ip: 10.0.0.1}, {ip: 'fd00::1'}], ports: [{port: 80}]}, {addresses: [{ip: 10.0.0.3}]}]",
		"metadata: {name: many}\nsubsets: [{addresses: [{ip: 10.0.0.1}, {ip: 10.0.0.2}], ports: [{port: 80}, {port: 443}]}]")...)
	golden(t, core("Node"), each[corev1.Node](t,
		"metadata: {name: a, labels: {node-role.kubernetes.io/control-plane: '', kubernetes.io/role: worker, node-role.kubernetes.io/: ''}}\n"+
			"status: {conditions: [{type: Ready, status: 'True'}], addresses: [{type: Hostname, address: a}, {type: InternalIP, address: 10.0.0.1}, {type: ExternalIP, address: 192.0.2.1}], "+
			"nodeInfo: {kubeletVersion: v1.37.2, osImage: Debian, kernelVersion: 6.1.0, containerRuntimeVersion: 'containerd://2.1', architecture: '', bootID: '', kubeProxyVersion: '', machineID: '', operatingSystem: '', systemUUID: ''}}",
		"metadata: {name: b}\nspec: {unschedulable: true}\nstatus: {conditions: [{type: Ready, status: Unknown}]}",
		"metadata: {name: c}")...)
	golden(t, core("Event"), each[corev1.Event](t,
		"metadata: {name: old}\ninvolvedObject: {kind: Pod, name: web, fieldPath: 'spec.containers{c}'}\ntype: Normal\nreason: Pulled\nmessage: \"pulled \\n\"\n"+
			"source: {component: kubelet, host: n1}\nfirstTimestamp: '2026-03-01T12:05:00Z'\nlastTimestamp: '2026-03-04T12:03:00Z'\ncount: 7",
		"metadata: {name: once}\ninvolvedObject: {kind: Node, name: n1}\ntype: Warning\nreason: Rebooted\nmessage: m\nreportingComponent: c\nreportingInstance: c-1\neventTime: '2026-03-04T12:04:00.000000Z'",
		"metadata: {name: series}\ninvolvedObject: {kind: Namespace}\nreportingComponent: c\neventTime: '2026-03-04T11:05:00.000000Z'\nseries: {count: 3, lastObservedTime: '2026-03-04T12:04:50.000000Z'}",
		"metadata: {name: timeless}\ninvolvedObject: {}")...)
}

func TestPodTable(t *testing.T) {
	const two = "spec: {nodeName: n1, containers: [{name: a}, {name: b}]}\n"
	const inits = "spec: {initContainers: [{name: i}, {name: j}], containers: [{name: a}]}\n"
	const sidecar = "spec: {initContainers: [{name: s, restartPolicy: Always}], containers: [{name: a}]}\n"
	pods := each[corev1.Pod](t,
		"metadata: {name: pending}\n"+two+"status: {phase: Pending}",
		"metadata: {name: gated}\n"+two+"status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: SchedulingGated}]}",
		"metadata: {name: evicted}\n"+two+"status: {phase: Failed, reason: Evicted}",
		"metadata: {name: running}\n"+two+"status: {phase: Running, podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}], containerStatuses: [{name: a, ready: true, restartCount: 0, state: {running: {}}}, {name: b, ready: true, restartCount: 0, state: {running: {}}}]}",
		"metadata: {name: restarted}\n"+two+"status: {phase: Running, containerStatuses: [{name: a, ready: true, restartCount: 2, state: {running: {}}, lastState: {terminated: {exitCode: 1, finishedAt: '2026-03-04T12:00:00Z'}}}, "+
			"{name: b, restartCount: 1, state: {running: {}}, lastState: {terminated: {exitCode: 1, finishedAt: '2026-03-04T11:00:00Z'}}}]}",
		"metadata: {name: crashing}\n"+two+"status: {phase: Running, containerStatuses: [{name: a, restartCount: 9, state: {waiting: {reason: CrashLoopBackOff}}}, {name: b, ready: true, state: {running: {}}}]}",
		"metadata: {name: killed}\n"+two+"status: {phase: Failed, containerStatuses: [{name: a, state: {terminated: {exitCode: 137, signal: 9}}}]}",
		"metadata: {name: exited}\n"+two+"status: {phase: Failed, containerStatuses: [{name: a, state: {terminated: {exitCode: 3}}}]}",
		"metadata: {name: done}\n"+two+"status: {phase: Succeeded, containerStatuses: [{name: a, state: {terminated: {exitCode: 0, reason: Completed}}}]}",
		"metadata: {name: half-done}\n"+two+"status: {phase: Running, containerStatuses: [{name: a, state: {terminated: {exitCode: 0, reason: Completed}}}, {name: b, ready: true, state: {running: {}}}]}",
		"metadata: {name: half-ready}\n"+two+"status: {phase: Running, conditions: [{type: Ready, status: 'True'}], containerStatuses: [{name: a, state: {terminated: {exitCode: 0, reason: Completed}}}, {name: b, ready: true, state: {running: {}}}]}",
		"metadata: {name: init-second}\n"+inits+"status: {phase: Pending, initContainerStatuses: [{name: i, state: {terminated: {exitCode: 0}}}, {name: j, state: {running: {}}}], containerStatuses: [{name: a, state: {waiting: {reason: PodInitializing}}}]}",
		"metadata: {name: init-waiting}\n"+inits+"status: {phase: Pending, initContainerStatuses: [{name: i, restartCount: 1, state: {waiting: {reason: ErrImagePull}}}]}",
		"metadata: {name: init-failed}\n"+inits+"status: {phase: Pending, initContainerStatuses: [{name: i, state: {terminated: {exitCode: 2}}}]}",
		"metadata: {name: init-error}\n"+inits+"status: {phase: Pending, initContainerStatuses: [{name: i, state: {terminated: {exitCode: 2, reason: Error}}}]}",
		"metadata: {name: init-over}\n"+inits+"status: {phase: Running, initContainerStatuses: [{name: i, restartCount: 5, state: {terminated: {exitCode: 0}}}, {name: j, state: {terminated: {exitCode: 0}}}], containerStatuses: [{name: a, ready: true, restartCount: 1, state: {running: {}}}]}",
		"metadata: {name: sidecar-up}\n"+sidecar+"status: {phase: Running, initContainerStatuses: [{name: s, ready: true, started: true, restartCount: 2, state: {running: {}}}], containerStatuses: [{name: a, ready: true, restartCount: 1, state: {running: {}}}]}",
		"metadata: {name: sidecar-starting}\n"+sidecar+"status: {phase: Pending, initContainerStatuses: [{name: s, started: false, state: {running: {}}}]}",
		"metadata: {name: deleted, deletionTimestamp: '2026-03-04T12:00:00Z'}\n"+two+"status: {phase: Running}",
		"metadata: {name: deleted-done, deletionTimestamp: '2026-03-04T12:00:00Z'}\n"+two+"status: {phase: Succeeded}",
		"metadata: {name: lost, deletionTimestamp: '2026-03-04T12:00:00Z'}\n"+two+"status: {phase: Running, reason: NodeLost}",
		"metadata: {name: gates}\nspec: {readinessGates: [{conditionType: a}, {conditionType: b}], containers: [{name: a}]}\nstatus: {phase: Running, nominatedNodeName: n2, conditions: [{type: a, status: 'True'}, {type: b, status: 'False'}]}",
	)
	golden(t, schema.GroupKind{Kind: "Pod"}, pods...)
}

func TestRegistrationTables(t *testing.T) {
	golden(t, schema.GroupKind{Group: apiregistrationv1.GroupName, Kind: "APIService"}, each[apiregistrationv1.APIService](t,
		"metadata: {name: v1.}\nstatus: {conditions: [{type: Available, status: 'True', reason: Local}]}",
		"metadata: {name: v1.up.example.com}\nspec: {groupPriorityMinimum: 1, versionPriority: 1, service: {namespace: ns, name: s}}\nstatus: {conditions: [{type: Other, status: 'False'}, {type: Available, status: 'True', reason: Passed}]}",
		"metadata: {name: v1.down.example.com}\nspec: {groupPriorityMinimum: 1, versionPriority: 1, service: {namespace: ns, name: s}}\nstatus: {conditions: [{type: Available, status: 'False', reason: MissingEndpoints}]}",
		"metadata: {name: v1.mute.example.com}\nspec: {groupPriorityMinimum: 1, versionPriority: 1, service: {namespace: ns, name: s}}\nstatus: {conditions: [{type: Available, status: 'False'}]}",
		"metadata: {name: v1.new.example.com}\nspec: {groupPriorityMinimum: 1, versionPriority: 1, service: {namespace: ns, name: s}}")...)
	golden(t, schema.GroupKind{Group: coordinationv1.GroupName, Kind: "Lease"}, each[coordinationv1.Lease](t,
		"metadata: {name: free}", "metadata: {name: held}\nspec: {holderIdentity: me}")...)
	golden(t, schema.GroupKind{Group: discoveryv1.GroupName, Kind: "EndpointSlice"}, each[discoveryv1.EndpointSlice](t,
		"metadata: {name: empty}\naddressType: IPv4",
		"metadata: {name: a}\naddressType: IPv4\nports: [{port: 80}, {name: web}, {}]\nendpoints: [{addresses: [10.0.0.1]}, {addresses: [10.0.0.2, 10.0.0.3]}]",
		"metadata: {name: many}\naddressType: IPv6\nports: [{port: 1}, {port: 2}, {port: 3}, {port: 4}]\nendpoints: [{addresses: ['fd00::1', 'fd00::2', 'fd00::3', 'fd00::4', 'fd00::5']}]",
		"metadata: {name: nameless}\naddressType: IPv4\nports: [{name: ''}]")...)
	const bound = "subjects: [{kind: User, name: u}, {kind: User, name: v}, {kind: Group, name: g}, {kind: ServiceAccount, namespace: ns, name: s}]"
	golden(t, schema.GroupKind{Group: rbacv1.GroupName, Kind: "RoleBinding"}, each[rbacv1.RoleBinding](t,
		"metadata: {name: a}\nroleRef: {kind: Role, name: r}\n"+bound, "metadata: {name: nobody}\nroleRef: {kind: ClusterRole, name: view}")...)
	golden(t, schema.GroupKind{Group: rbacv1.GroupName, Kind: "ClusterRoleBinding"}, each[rbacv1.ClusterRoleBinding](t,
		"metadata: {name: a}\nroleRef: {kind: ClusterRole, name: r}\n"+bound)...)
	golden(t, schema.GroupKind{Group: flowcontrolv1.GroupName, Kind: "FlowSchema"}, each[flowcontrolv1.FlowSchema](t,
		"metadata: {name: a}\nspec: {matchingPrecedence: 100, priorityLevelConfiguration: {name: p}, distinguisherMethod: {type: ByUser}}\nstatus: {conditions: [{type: Dangling, status: 'False'}]}",
		"metadata: {name: b}\nspec: {matchingPrecedence: 1, priorityLevelConfiguration: {name: p}}")...)
	golden(t, schema.GroupKind{Group: flowcontrolv1.GroupName, Kind: "PriorityLevelConfiguration"}, each[flowcontrolv1.PriorityLevelConfiguration](t,
		"metadata: {name: exempt}\nspec: {type: Exempt, exempt: {}}",
		"metadata: {name: rejecting}\nspec: {type: Limited, limited: {nominalConcurrencyShares: 0, limitResponse: {type: Reject}}}",
		"metadata: {name: queuing}\nspec: {type: Limited, limited: {nominalConcurrencyShares: 30, limitResponse: {type: Queue, queuing: {queues: 64, handSize: 6, queueLengthLimit: 50}}}}")...)
}

func TestAdmissionTables(t *testing.T) {
	kind := func(name string) schema.GroupKind {
		return schema.GroupKind{Group: admissionregistrationv1.GroupName, Kind: name}
	}
	const hooks = "metadata: {name: a}\nwebhooks: [{name: a, clientConfig: {}}, {name: b, clientConfig: {}}]"
	golden(t, kind("ValidatingWebhookConfiguration"), each[admissionregistrationv1.ValidatingWebhookConfiguration](t, hooks)...)
	golden(t, kind("MutatingWebhookConfiguration"), each[admissionregistrationv1.MutatingWebhookConfiguration](t, hooks)...)
	golden(t, kind("ValidatingAdmissionPolicy"), each[admissionregistrationv1.ValidatingAdmissionPolicy](t,
		"metadata: {name: a}\nspec: {validations: [{expression: 'true'}]}", "metadata: {name: b}\nspec: {paramKind: {apiVersion: example.com/v1, kind: Limit}}")...)
	golden(t, kind("MutatingAdmissionPolicy"), each[admissionregistrationv1.MutatingAdmissionPolicy](t,
		"metadata: {name: a}\nspec: {mutations: [{patchType: JSONPatch}], paramKind: {apiVersion: v1, kind: ConfigMap}}")...)
	bindings := []string{
		"metadata: {name: a}\nspec: {policyName: p}", "metadata: {name: b}\nspec: {policyName: p, paramRef: {name: x, namespace: ns}}",
		"metadata: {name: c}\nspec: {policyName: p, paramRef: {name: x}}", "metadata: {name: d}\nspec: {policyName: p, paramRef: {selector: {matchLabels: {a: b}}}}",
		"metadata: {name: e}\nspec: {policyName: p, paramRef: {}}",
	}
	golden(t, kind("ValidatingAdmissionPolicyBinding"), each[admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, bindings...)...)
	golden(t, kind("MutatingAdmissionPolicyBinding"), each[admissionregistrationv1.MutatingAdmissionPolicyBinding](t, bindings...)...)
}
