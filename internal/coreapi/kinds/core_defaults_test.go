package kinds_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

//lint:file-ignore SA1019 v1 Endpoints are deprecated, and still served to clients from before EndpointSlices

func TestCoreDefaults(t *testing.T) {
	kindtest.Defaults(t, []kindtest.Default{
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
		{"a node offers what it has, in thousandths", &corev1.Node{}, "status: {capacity: {cpu: 2000001u}}",
			"metadata: {}\nspec: {}\nstatus: {capacity: {cpu: 2001m}, allocatable: {cpu: 2001m}, daemonEndpoints: {kubeletEndpoint: {Port: 0}}, nodeInfo: " +
				"{architecture: '', bootID: '', containerRuntimeVersion: '', kernelVersion: '', kubeProxyVersion: '', kubeletVersion: '', machineID: '', operatingSystem: '', osImage: '', systemUUID: ''}}"},
	})
}

func TestCoreWorkloadDefaults(t *testing.T) {
	const in = "{metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i, ports: [{containerPort: 80}], resources: {limits: {cpu: 1}}}], hostNetwork: true}}"
	out := func(restart string) string {
		return "{metadata: {labels: {app: a}}, spec: {hostNetwork: true, restartPolicy: " + restart + ", dnsPolicy: ClusterFirst, schedulerName: default-scheduler, " +
			"terminationGracePeriodSeconds: 30, securityContext: {}, containers: [{name: c, image: i, imagePullPolicy: Always, terminationMessagePath: /dev/termination-log, " +
			"terminationMessagePolicy: File, ports: [{containerPort: 80, protocol: TCP}], resources: {limits: {cpu: '1'}}}]}}"
	}
	always := out("Always")
	kindtest.Defaults(t, []kindtest.Default{
		{"a template leaves to its pods what only pods get", &corev1.PodTemplate{}, "template: " + in, "metadata: {}\ntemplate: " + always},
		{"a replication controller is labelled and selects as its template", &corev1.ReplicationController{}, "spec: {template: " + in + "}",
			"metadata: {labels: {app: a}}\nspec: {replicas: 1, selector: {app: a}, template: " + always + "}\nstatus: {replicas: 0}"},
	})
}

func TestCoreDefaultsOfTheCluster(t *testing.T) {
	kindtest.Defaults(t, []kindtest.Default{
		{"a volume on a host", &corev1.PersistentVolume{}, "spec: {capacity: {storage: 100u}, hostPath: {path: /a}}",
			"metadata: {}\nspec: {capacity: {storage: 1m}, hostPath: {path: /a, type: ''}, persistentVolumeReclaimPolicy: Retain, volumeMode: Filesystem}\nstatus: {phase: Pending}"},
		{"a volume by iSCSI", &corev1.PersistentVolume{}, "spec: {volumeMode: Block, persistentVolumeReclaimPolicy: Delete, iscsi: {targetPortal: p, iqn: q, lun: 0}}\nstatus: {phase: Bound}",
			"metadata: {}\nspec: {volumeMode: Block, persistentVolumeReclaimPolicy: Delete, iscsi: {targetPortal: p, iqn: q, lun: 0, iscsiInterface: default}}\nstatus: {phase: Bound}"},
		{"a claim", &corev1.PersistentVolumeClaim{}, "spec: {resources: {requests: {storage: 1Gi}}}",
			"metadata: {}\nspec: {resources: {requests: {storage: 1Gi}}, volumeMode: Filesystem}\nstatus: {phase: Pending}"},
		{"limits of containers follow from their bounds", &corev1.LimitRange{}, "spec: {limits: [{type: Container, max: {cpu: '2'}, min: {memory: 1Mi}}, {type: Pod, max: {cpu: '2'}}]}",
			"metadata: {}\nspec: {limits: [{type: Container, max: {cpu: '2'}, min: {memory: 1Mi}, default: {cpu: '2'}, defaultRequest: {cpu: '2', memory: 1Mi}}, {type: Pod, max: {cpu: '2'}}]}"},
		{"limits of containers that are said stay", &corev1.LimitRange{}, "spec: {limits: [{type: Container, max: {cpu: '2'}, default: {cpu: '1'}, defaultRequest: {cpu: 500m}}]}",
			"metadata: {}\nspec: {limits: [{type: Container, max: {cpu: '2'}, default: {cpu: '1'}, defaultRequest: {cpu: 500m}}]}"},
	})
}
