package defaults_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestDefaultsOfTheCluster(t *testing.T) {
	for _, c := range []struct {
		situation string
		obj       runtime.Object
		in, want  string
	}{
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
		{"a policy that is about both directions", &networkingv1.NetworkPolicy{}, "spec: {podSelector: {}, ingress: [{ports: [{port: 80}]}], egress: [{ports: [{port: 53, protocol: UDP}]}]}",
			"metadata: {}\nspec: {podSelector: {}, policyTypes: [Ingress, Egress], ingress: [{ports: [{port: 80, protocol: TCP}]}], egress: [{ports: [{port: 53, protocol: UDP}]}]}"},
		{"a policy that denies all", &networkingv1.NetworkPolicy{}, "spec: {podSelector: {}}", "metadata: {}\nspec: {podSelector: {}, policyTypes: [Ingress]}"},
		{"parameters of all the cluster", &networkingv1.IngressClass{}, "spec: {parameters: {kind: K, name: p}}",
			"metadata: {}\nspec: {parameters: {kind: K, name: p, scope: Cluster}}"},
		{"a storage class", &storagev1.StorageClass{}, "provisioner: p", "metadata: {}\nprovisioner: p\nreclaimPolicy: Delete\nvolumeBindingMode: Immediate"},
		{"a storage driver", &storagev1.CSIDriver{}, "spec: {attachRequired: false}",
			"metadata: {}\nspec: {attachRequired: false, podInfoOnMount: false, storageCapacity: false, fsGroupPolicy: ReadWriteOnceWithFSType, requiresRepublish: false, " +
				"seLinuxMount: false, preventPodSchedulingIfMissing: false, volumeLifecycleModes: [Persistent]}"},
		{"a priority", &schedulingv1.PriorityClass{}, "value: 1", "metadata: {}\nvalue: 1\npreemptionPolicy: PreemptLowerPriority"},
		{"a runtime's overhead of less than a thousandth", &nodev1.RuntimeClass{}, "handler: h\noverhead: {podFixed: {cpu: 1u}}", "metadata: {}\nhandler: h\noverhead: {podFixed: {cpu: 1m}}"},
	} {
		t.Run(c.situation, func(t *testing.T) { fill(t, c.obj, c.in, c.want) })
	}
}
