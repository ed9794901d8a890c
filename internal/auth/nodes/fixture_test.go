package nodes

import (
	"testing"

	"go.uber.org/goleak"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func nodeUser(name string) user.Info {
	return &user.DefaultInfo{Name: "system:node:" + name, Groups: []string{"system:nodes", "system:authenticated"}}
}

func local(name string) *corev1.LocalObjectReference { return &corev1.LocalObjectReference{Name: name} }

func secretRef(namespace, name string) *corev1.SecretReference {
	return &corev1.SecretReference{Namespace: namespace, Name: name}
}

// everything is a pod that refers to objects in every possible way. The names end in the pod's name.
func everything(namespace, name, node string) *corev1.Pod {
	claim, template, made := "claim-"+name, "template", "made-"+name
	volume := func(volume string, s corev1.VolumeSource) corev1.Volume {
		return corev1.Volume{Name: volume, VolumeSource: s}
	}
	env := func(how string) ([]corev1.EnvFromSource, []corev1.EnvVar) {
		return []corev1.EnvFromSource{
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: *local(how + "-secret-envfrom-" + name)}},
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: *local(how + "-configmap-envfrom-" + name)}},
			}, []corev1.EnvVar{
				{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: *local(how + "-secret-env-" + name)}}},
				{ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: *local(how + "-configmap-env-" + name)}}},
			}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "1"},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: "account-" + name,
			ImagePullSecrets: []corev1.LocalObjectReference{*local("secret-pull-" + name)},
			ResourceClaims: []corev1.PodResourceClaim{
				{Name: "named", ResourceClaimName: &claim},
				{Name: "templated", ResourceClaimTemplateName: &template},
				{Name: "not made", ResourceClaimTemplateName: &template},
			},
			Volumes: []corev1.Volume{
				volume("azure", corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{SecretName: "secret-azure-" + name}}),
				volume("ceph", corev1.VolumeSource{CephFS: &corev1.CephFSVolumeSource{SecretRef: local("secret-ceph-" + name)}}),
				volume("cinder", corev1.VolumeSource{Cinder: &corev1.CinderVolumeSource{SecretRef: local("secret-cinder-" + name)}}),
				volume("flex", corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{SecretRef: local("secret-flex-" + name)}}),
				volume("rbd", corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{SecretRef: local("secret-rbd-" + name)}}),
				volume("secret", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "secret-volume-" + name}}),
				volume("scaleio", corev1.VolumeSource{ScaleIO: &corev1.ScaleIOVolumeSource{SecretRef: local("secret-scaleio-" + name)}}),
				volume("iscsi", corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{SecretRef: local("secret-iscsi-" + name)}}),
				volume("storageos", corev1.VolumeSource{StorageOS: &corev1.StorageOSVolumeSource{SecretRef: local("secret-storageos-" + name)}}),
				volume("csi", corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: local("secret-csi-" + name)}}),
				volume("configmap", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: *local("configmap-volume-" + name)}}),
				volume("projected", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
					{Secret: &corev1.SecretProjection{LocalObjectReference: *local("secret-projected-" + name)}},
					{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: *local("configmap-projected-" + name)}},
				}}}),
				volume("pvc", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "pvc-" + name}}),
				volume("ephemeral", corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}),
			},
		},
		Status: corev1.PodStatus{
			ResourceClaimStatuses:       []corev1.PodResourceClaimStatus{{Name: "templated", ResourceClaimName: &made}, {Name: "not made"}},
			ExtendedResourceClaimStatus: &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "extended-" + name},
		},
	}
	var one, two, three corev1.Container
	one.EnvFrom, one.Env = env("init")
	two.EnvFrom, two.Env = env("main")
	three.EnvFrom, three.Env = env("ephemeral")
	pod.Spec.InitContainers, pod.Spec.Containers = []corev1.Container{one}, []corev1.Container{two}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon(three)}}
	return pod
}

// referenced returns the names of the objects that the pod everything refers to, by resource.
func referenced(name string) map[string][]string {
	all := map[string][]string{
		"persistentvolumeclaims": {"pvc-" + name, name + "-ephemeral"},
		"resourceclaims":         {"claim-" + name, "made-" + name, "extended-" + name},
		"configmaps":             {"configmap-volume-" + name, "configmap-projected-" + name},
	}
	for _, source := range []string{"pull", "azure", "ceph", "cinder", "flex", "rbd", "volume", "scaleio", "iscsi", "storageos", "csi", "projected"} {
		all["secrets"] = append(all["secrets"], "secret-"+source+"-"+name)
	}
	for _, container := range []string{"init", "main", "ephemeral"} {
		all["secrets"] = append(all["secrets"], container+"-secret-envfrom-"+name, container+"-secret-env-"+name)
		all["configmaps"] = append(all["configmaps"], container+"-configmap-envfrom-"+name, container+"-configmap-env-"+name)
	}
	return all
}

func boundVolume(name, claimNamespace, claim string, source corev1.PersistentVolumeSource) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: claimNamespace, Name: claim}, PersistentVolumeSource: source},
	}
}

func attachment(name, node string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.VolumeAttachmentSpec{NodeName: node}}
}

func slice(name string, node *string) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{NodeName: node}}
}

func certificateRequest(namespace, name, node string) *certificatesv1.PodCertificateRequest {
	r := &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	r.Spec.NodeName = types.NodeName(node)
	return r
}

var groups = map[string]string{
	"resourceclaims": "resource.k8s.io", "resourceslices": "resource.k8s.io", "volumeattachments": "storage.k8s.io", "csinodes": "storage.k8s.io",
	"leases": "coordination.k8s.io", "podcertificaterequests": "certificates.k8s.io", "certificatesigningrequests": "certificates.k8s.io",
	"runtimeclasses": "node.k8s.io", "tokenreviews": "authentication.k8s.io", "deployments": "apps",
}

// question returns the attributes of a request of a node.
func question(u user.Info, verb, resource, subresource, namespace, name, selector string) authorizer.AttributesRecord {
	a := authorizer.AttributesRecord{
		User: u, ResourceRequest: true, Verb: verb, APIGroup: groups[resource], Resource: resource, Subresource: subresource,
		Namespace: namespace, Name: name,
	}
	if selector != "" {
		parsed, err := fields.ParseSelector(selector)
		if err != nil {
			panic(err)
		}
		a.FieldSelectorRequirements = parsed.Requirements()
	}
	return a
}
