package kinds_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

//lint:file-ignore SA1019 v1 Endpoints are deprecated, and still served to clients from before EndpointSlices

func TestCoreTables(t *testing.T) {
	kindtest.Table[corev1.Namespace](t,
		"metadata: {name: default}\nstatus: {phase: Active}", "metadata: {name: old}\nstatus: {phase: Terminating}")
	kindtest.Table[corev1.ConfigMap](t,
		"metadata: {name: empty}", "metadata: {name: a}\ndata: {x: '1', y: '2'}\nbinaryData: {z: AAAA}")
	kindtest.Table[corev1.Secret](t,
		"metadata: {name: a}\ntype: Opaque", "metadata: {name: b}\ntype: kubernetes.io/tls\ndata: {tls.crt: AAAA, tls.key: AAAA}")
	kindtest.Table[corev1.ServiceAccount](t,
		"metadata: {name: default}", "metadata: {name: old}\nsecrets: [{name: token}]")
	kindtest.Table[corev1.Service](t,
		"metadata: {name: kubernetes}\nspec: {type: ClusterIP, clusterIP: 10.0.0.1, ports: [{port: 443, protocol: TCP}]}",
		"metadata: {name: headless}\nspec: {type: ClusterIP, clusterIP: None, selector: {app: db, tier: a}}",
		"metadata: {name: outside}\nspec: {type: ClusterIP, clusterIP: 10.0.0.2, externalIPs: [192.0.2.1, 192.0.2.2], ports: [{port: 1, protocol: UDP}]}",
		"metadata: {name: elsewhere}\nspec: {type: ExternalName, externalName: db.example.com}",
		"metadata: {name: nodeport}\nspec: {type: NodePort, clusterIP: 10.0.0.3, ports: [{port: 80, nodePort: 30080, protocol: TCP}, {port: 53, protocol: UDP}]}",
		"metadata: {name: pending}\nspec: {type: LoadBalancer, clusterIP: 10.0.0.4, ports: [{port: 80, protocol: TCP}]}",
		"metadata: {name: balanced}\nspec: {type: LoadBalancer, clusterIP: 10.0.0.5, externalIPs: [192.0.2.9], ports: [{port: 80, protocol: TCP}]}\n"+
			"status: {loadBalancer: {ingress: [{hostname: lb.example.com}, {ip: 192.0.2.7}, {ip: 192.0.2.7}]}}",
		"metadata: {name: odd}")
	kindtest.Table[corev1.Endpoints](t,
		"metadata: {name: none}",
		"metadata: {name: unready}\nsubsets: [{notReadyAddresses: [{ip: 10.0.0.1}], ports: [{port: 80}]}]",
		"metadata: {name: three}\nsubsets: [{addresses: [{ip: 10.0.0.1}, {ip: 'fd00::1'}], ports: [{port: 80}]}, {addresses: [{ip: 10.0.0.3}]}]",
		"metadata: {name: many}\nsubsets: [{addresses: [{ip: 10.0.0.1}, {ip: 10.0.0.2}], ports: [{port: 80}, {port: 443}]}]")
	kindtest.Table[corev1.Node](t,
		"metadata: {name: a, labels: {node-role.kubernetes.io/control-plane: '', kubernetes.io/role: worker, node-role.kubernetes.io/: ''}}\n"+
			"status: {conditions: [{type: Ready, status: 'True'}], addresses: [{type: Hostname, address: a}, {type: InternalIP, address: 10.0.0.1}, {type: ExternalIP, address: 192.0.2.1}], "+
			"nodeInfo: {kubeletVersion: v1.37.2, osImage: Debian, kernelVersion: 6.1.0, containerRuntimeVersion: 'containerd://2.1', architecture: '', bootID: '', kubeProxyVersion: '', machineID: '', operatingSystem: '', systemUUID: ''}}",
		"metadata: {name: b}\nspec: {unschedulable: true}\nstatus: {conditions: [{type: Ready, status: Unknown}]}",
		"metadata: {name: c}")
	kindtest.Table[corev1.Event](t,
		"metadata: {name: old}\ninvolvedObject: {kind: Pod, name: web, fieldPath: 'spec.containers{c}'}\ntype: Normal\nreason: Pulled\nmessage: \"pulled \\n\"\n"+
			"source: {component: kubelet, host: n1}\nfirstTimestamp: '2026-03-01T12:05:00Z'\nlastTimestamp: '2026-03-04T12:03:00Z'\ncount: 7",
		"metadata: {name: once}\ninvolvedObject: {kind: Node, name: n1}\ntype: Warning\nreason: Rebooted\nmessage: m\nreportingComponent: c\nreportingInstance: c-1\neventTime: '2026-03-04T12:04:00.000000Z'",
		"metadata: {name: series}\ninvolvedObject: {kind: Namespace}\nreportingComponent: c\neventTime: '2026-03-04T11:05:00.000000Z'\nseries: {count: 3, lastObservedTime: '2026-03-04T12:04:50.000000Z'}",
		"metadata: {name: timeless}\ninvolvedObject: {}")
}

func TestPodTable(t *testing.T) {
	const two = "spec: {nodeName: n1, containers: [{name: a}, {name: b}]}\n"
	const inits = "spec: {initContainers: [{name: i}, {name: j}], containers: [{name: a}]}\n"
	const sidecar = "spec: {initContainers: [{name: s, restartPolicy: Always}], containers: [{name: a}]}\n"
	kindtest.Table[corev1.Pod](t,
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
}

func TestCoreWorkloadTables(t *testing.T) {
	const template = "template: {metadata: {labels: {app: web}}, spec: {containers: [{name: a, image: i}, {name: b, image: j}]}}"
	kindtest.Table[corev1.PodTemplate](t, "metadata: {name: web}\n"+template)
	kindtest.Table[corev1.ReplicationController](t,
		"metadata: {name: web}\nspec: {replicas: 2, selector: {app: web}, "+template+"}\nstatus: {replicas: 1}", "metadata: {name: bare}\nspec: {}\nstatus: {replicas: 0}")
}

func TestCoreStorageTables(t *testing.T) {
	kindtest.Table[corev1.PersistentVolume](t,
		"metadata: {name: free}\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce, ReadOnlyMany], persistentVolumeReclaimPolicy: Retain, volumeMode: Filesystem}\nstatus: {phase: Available}",
		"metadata: {name: bound}\nspec: {capacity: {storage: 2Gi}, accessModes: [ReadWriteOncePod], persistentVolumeReclaimPolicy: Delete, storageClassName: fast, volumeAttributesClassName: gold, claimRef: {namespace: ns, name: data}}\nstatus: {phase: Bound}",
		"metadata: {name: failed, annotations: {volume.beta.kubernetes.io/storage-class: old}}\nspec: {capacity: {storage: 2Gi}, storageClassName: fast}\nstatus: {phase: Failed, reason: Broken}",
		"metadata: {name: leaving, deletionTimestamp: '2026-03-04T12:00:00Z'}\nspec: {capacity: {storage: 2Gi}}\nstatus: {phase: Released}")
	kindtest.Table[corev1.PersistentVolumeClaim](t,
		"metadata: {name: waiting}\nspec: {resources: {requests: {storage: 1Gi}}, volumeMode: Block}\nstatus: {phase: Pending}",
		"metadata: {name: bound}\nspec: {volumeName: pv1, storageClassName: fast, volumeAttributesClassName: gold}\nstatus: {phase: Bound, accessModes: [ReadWriteMany], capacity: {storage: 1Gi}}",
		"metadata: {name: leaving, deletionTimestamp: '2026-03-04T12:00:00Z'}\nstatus: {phase: Bound}")
}

func TestCoreClusterTables(t *testing.T) {
	kindtest.Table[corev1.ResourceQuota](t, "metadata: {name: new}",
		"metadata: {name: used}\nstatus: {hard: {pods: '10', limits.cpu: '4', requests.cpu: '2', limits.memory: 4Gi}, used: {pods: '3', limits.cpu: 500m, requests.cpu: 250m, limits.memory: 1Gi}}")
}
