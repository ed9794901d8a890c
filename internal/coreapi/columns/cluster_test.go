package columns_test

import (
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestStorageTables(t *testing.T) {
	kind := func(name string) schema.GroupKind { return schema.GroupKind{Group: storagev1.GroupName, Kind: name} }
	golden(t, schema.GroupKind{Kind: "PersistentVolume"}, each[corev1.PersistentVolume](t,
		"metadata: {name: free}\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce, ReadOnlyMany], persistentVolumeReclaimPolicy: Retain, volumeMode: Filesystem}\nstatus: {phase: Available}",
		"metadata: {name: bound}\nspec: {capacity: {storage: 2Gi}, accessModes: [ReadWriteOncePod], persistentVolumeReclaimPolicy: Delete, storageClassName: fast, volumeAttributesClassName: gold, claimRef: {namespace: ns, name: data}}\nstatus: {phase: Bound}",
		"metadata: {name: failed, annotations: {volume.beta.kubernetes.io/storage-class: old}}\nspec: {capacity: {storage: 2Gi}, storageClassName: fast}\nstatus: {phase: Failed, reason: Broken}",
		"metadata: {name: leaving, deletionTimestamp: '2026-03-04T12:00:00Z'}\nspec: {capacity: {storage: 2Gi}}\nstatus: {phase: Released}")...)
	golden(t, schema.GroupKind{Kind: "PersistentVolumeClaim"}, each[corev1.PersistentVolumeClaim](t,
		"metadata: {name: waiting}\nspec: {resources: {requests: {storage: 1Gi}}, volumeMode: Block}\nstatus: {phase: Pending}",
		"metadata: {name: bound}\nspec: {volumeName: pv1, storageClassName: fast, volumeAttributesClassName: gold}\nstatus: {phase: Bound, accessModes: [ReadWriteMany], capacity: {storage: 1Gi}}",
		"metadata: {name: leaving, deletionTimestamp: '2026-03-04T12:00:00Z'}\nstatus: {phase: Bound}")...)
	golden(t, kind("StorageClass"), each[storagev1.StorageClass](t,
		"metadata: {name: plain}\nprovisioner: example.com/disk",
		"metadata: {name: fast, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}\nprovisioner: example.com/ssd\nreclaimPolicy: Retain\nvolumeBindingMode: WaitForFirstConsumer\nallowVolumeExpansion: true")...)
	golden(t, kind("VolumeAttachment"), each[storagev1.VolumeAttachment](t,
		"metadata: {name: a}\nspec: {attacher: csi.example.com, nodeName: n1, source: {persistentVolumeName: pv1}}\nstatus: {attached: true}",
		"metadata: {name: b}\nspec: {attacher: csi.example.com, nodeName: n1, source: {}}")...)
	golden(t, kind("CSIDriver"), each[storagev1.CSIDriver](t, "metadata: {name: bare}",
		"metadata: {name: full}\nspec: {attachRequired: false, podInfoOnMount: true, storageCapacity: true, requiresRepublish: true, tokenRequests: [{audience: a}, {audience: b}], volumeLifecycleModes: [Persistent, Ephemeral]}")...)
	golden(t, kind("CSINode"), each[storagev1.CSINode](t, "metadata: {name: n1}\nspec: {drivers: [{name: a, nodeID: x}, {name: b, nodeID: y}]}")...)
	golden(t, kind("CSIStorageCapacity"), each[storagev1.CSIStorageCapacity](t,
		"metadata: {name: a}\nstorageClassName: fast\ncapacity: 10Gi", "metadata: {name: b}\nstorageClassName: slow")...)
	golden(t, kind("VolumeAttributesClass"), each[storagev1.VolumeAttributesClass](t, "metadata: {name: gold}\ndriverName: csi.example.com")...)
}

func TestNetworkTables(t *testing.T) {
	kind := func(name string) schema.GroupKind { return schema.GroupKind{Group: networkingv1.GroupName, Kind: name} }
	golden(t, kind("Ingress"), each[networkingv1.Ingress](t,
		"metadata: {name: bare}",
		"metadata: {name: full}\nspec: {ingressClassName: nginx, tls: [{hosts: [a]}], rules: [{host: a}, {host: b}]}\nstatus: {loadBalancer: {ingress: [{ip: 10.0.0.2}, {hostname: lb.example.com}, {ip: 10.0.0.2}]}}",
		"metadata: {name: many}\nspec: {rules: [{host: a}, {host: b}, {host: c}, {host: d}, {host: e}]}",
		"metadata: {name: any}\nspec: {rules: [{}]}")...)
	golden(t, kind("IngressClass"), each[networkingv1.IngressClass](t,
		"metadata: {name: a}\nspec: {controller: example.com/c}",
		"metadata: {name: b, annotations: {ingressclass.kubernetes.io/is-default-class: 'true'}}\nspec: {controller: example.com/c, parameters: {apiGroup: example.com, kind: Params, name: p}}")...)
	golden(t, kind("NetworkPolicy"), each[networkingv1.NetworkPolicy](t, "metadata: {name: all}\nspec: {podSelector: {}}",
		"metadata: {name: some}\nspec: {podSelector: {matchLabels: {app: web}}}")...)
	golden(t, kind("IPAddress"), each[networkingv1.IPAddress](t,
		"metadata: {name: 10.0.0.1}\nspec: {parentRef: {resource: services, namespace: default, name: kubernetes}}",
		"metadata: {name: 10.0.0.2}\nspec: {parentRef: {group: Example.com, resource: things, name: t}}", "metadata: {name: 10.0.0.3}")...)
	golden(t, kind("ServiceCIDR"), each[networkingv1.ServiceCIDR](t, "metadata: {name: kubernetes}\nspec: {cidrs: [10.96.0.0/12, 'fd00::/108']}")...)
}

func TestClusterTables(t *testing.T) {
	golden(t, schema.GroupKind{Kind: "ResourceQuota"}, each[corev1.ResourceQuota](t, "metadata: {name: new}",
		"metadata: {name: used}\nstatus: {hard: {pods: '10', limits.cpu: '4', requests.cpu: '2', limits.memory: 4Gi}, used: {pods: '3', limits.cpu: 500m, requests.cpu: 250m, limits.memory: 1Gi}}")...)
	golden(t, schema.GroupKind{Kind: "ComponentStatus"}, each[corev1.ComponentStatus](t,
		"metadata: {name: etcd-0}\nconditions: [{type: Healthy, status: 'True', message: ok}]",
		"metadata: {name: etcd-1}\nconditions: [{type: Healthy, status: 'False', error: gone}]", "metadata: {name: unknown}")...)
	golden(t, schema.GroupKind{Group: schedulingv1.GroupName, Kind: "PriorityClass"}, each[schedulingv1.PriorityClass](t,
		"metadata: {name: a}\nvalue: 10\nglobalDefault: true\npreemptionPolicy: Never", "metadata: {name: b}\nvalue: -5")...)
	golden(t, schema.GroupKind{Group: nodev1.GroupName, Kind: "RuntimeClass"}, each[nodev1.RuntimeClass](t, "metadata: {name: sandbox}\nhandler: runsc")...)
	const spec = "spec: {signerName: example.com/s, username: jane, expirationSeconds: 86400, request: eA==}\n"
	golden(t, schema.GroupKind{Group: certificatesv1.GroupName, Kind: "CertificateSigningRequest"}, each[certificatesv1.CertificateSigningRequest](t,
		"metadata: {name: pending}\nspec: {signerName: '', request: eA==}",
		"metadata: {name: approved}\n"+spec+"status: {conditions: [{type: Approved, status: 'True'}]}",
		"metadata: {name: issued}\n"+spec+"status: {certificate: eA==, conditions: [{type: Approved, status: 'True'}]}",
		"metadata: {name: denied}\n"+spec+"status: {conditions: [{type: Approved, status: 'True'}, {type: Denied, status: 'True'}]}",
		"metadata: {name: failed}\n"+spec+"status: {conditions: [{type: Approved, status: 'True'}, {type: Failed, status: 'True'}]}")...)
	golden(t, schema.GroupKind{Group: certificatesv1.GroupName, Kind: "ClusterTrustBundle"}, each[certificatesv1.ClusterTrustBundle](t,
		"metadata: {name: a}\nspec: {trustBundle: x}", "metadata: {name: 'example.com:s:a'}\nspec: {signerName: example.com/s, trustBundle: x}")...)
	const ofPod = "spec: {signerName: example.com/s, podName: p, serviceAccountName: s, nodeName: node-1, unverifiedUserAnnotations: {example.com/b: '2', example.com/a: '1'}}\n"
	golden(t, schema.GroupKind{Group: certificatesv1.GroupName, Kind: "PodCertificateRequest"}, each[certificatesv1.PodCertificateRequest](t,
		"metadata: {name: pending}\n"+ofPod, "metadata: {name: issued}\n"+ofPod+"status: {conditions: [{type: Issued, status: 'True'}]}")...)
}

func TestOfSeveralDefaultClassesTheNewestIsMarked(t *testing.T) {
	class := func(name string, age time.Duration, isDefault string) storagev1.StorageClass {
		return storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{
			Name: name, CreationTimestamp: metav1.NewTime(now.Add(-age)),
			Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": isDefault},
		}}
	}
	list := &storagev1.StorageClassList{Items: []storagev1.StorageClass{
		class("old", time.Hour, "true"), class("zeta", time.Minute, "true"), class("new", time.Minute, "true"), class("newest", 0, "false"),
	}}
	table, err := convertorOf(schema.GroupKind{Group: storagev1.GroupName, Kind: "StorageClass"}).ConvertToTable(t.Context(), list, nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, row := range table.Rows {
		names = append(names, row.Cells[0].(string))
	}
	if got := strings.Join(names, ","); got != "old,zeta,new (default),newest" {
		t.Errorf("got %s", got)
	}
}
