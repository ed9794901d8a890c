package plugins

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
)

// clusterOfNodes has the node me, pods on it and on other nodes, and the objects that the pods use.
type clusterOfNodes map[string]runtime.Object

func getObject[T runtime.Object](c clusterOfNodes, resource, namespace, name string) (T, error) {
	if o, ok := c[resource+" "+namespace+"/"+name].(T); ok {
		return o, nil
	}
	var none T
	if name == "unreadable" {
		return none, errors.New("storage is away")
	}
	return none, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
}

func (c clusterOfNodes) Pod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	return getObject[*corev1.Pod](c, "pods", namespace, name)
}

func (c clusterOfNodes) Node(_ context.Context, name string) (*corev1.Node, error) {
	return getObject[*corev1.Node](c, "nodes", "", name)
}

func (c clusterOfNodes) ServiceAccount(_ context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	return getObject[*corev1.ServiceAccount](c, "serviceaccounts", namespace, name)
}

func (c clusterOfNodes) VolumeClaim(_ context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return getObject[*corev1.PersistentVolumeClaim](c, "persistentvolumeclaims", namespace, name)
}

func (c clusterOfNodes) Volume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	return getObject[*corev1.PersistentVolume](c, "persistentvolumes", "", name)
}

func (c clusterOfNodes) CSIDriver(_ context.Context, name string) (*storagev1.CSIDriver, error) {
	return getObject[*storagev1.CSIDriver](c, "csidrivers", "", name)
}

// audienceRights contains entries of the form "resource name" that nodes may also request.
type audienceRights []string

func (r audienceRights) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetResource() == "broken" {
		return authorizer.DecisionNoOpinion, "", errors.New("no rules")
	}
	for _, right := range r {
		if right == a.GetVerb()+" "+a.GetResource()+" "+a.GetNamespace()+"/"+a.GetName() {
			return authorizer.DecisionAllow, "", nil
		}
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (r audienceRights) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(r.Authorize(ctx, a))
}

func podOn(node, name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "pod-uid"}, Spec: corev1.PodSpec{NodeName: node}}
	for _, f := range change {
		f(pod)
	}
	return pod
}

func withVolume(s corev1.VolumeSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: s})
	}
}

func projected(s corev1.VolumeProjection) func(*corev1.Pod) {
	return withVolume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{s}}})
}

func asAccount(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.ServiceAccountName = name }
}

// mirrorPod returns a static pod in the form that a kubelet writes.
func mirrorPod(change ...func(*corev1.Pod)) *corev1.Pod {
	yes := true
	return podOn("me", "static-me", append([]func(*corev1.Pod){func(p *corev1.Pod) {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "true"}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "me", UID: "node-uid", Controller: &yes}}
	}}, change...)...)
}

func owner(change func(*metav1.OwnerReference)) func(*corev1.Pod) {
	return func(p *corev1.Pod) { change(&p.OwnerReferences[0]) }
}

func nodeCluster() clusterOfNodes {
	csi := func(driver string) corev1.PersistentVolumeSource {
		return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver}}
	}
	c := clusterOfNodes{
		"nodes /me":                      &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "me", UID: "node-uid"}},
		"serviceaccounts ns/account":     &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "account", UID: "account-uid"}},
		"serviceaccounts ns/another":     &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "another", UID: "account-uid"}},
		"csidrivers /csi.example.com":    &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{TokenRequests: []storagev1.TokenRequest{{Audience: "csi"}, {Audience: ""}}}},
		"csidrivers /file.csi.azure.com": &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{TokenRequests: []storagev1.TokenRequest{{Audience: "azure"}}}},
		"persistentvolumes /pv":          &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: csi("csi.example.com")}},
		"persistentvolumes /in-tree": &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "in-tree"}, Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "ns", Name: "in-tree"}, PersistentVolumeSource: corev1.PersistentVolumeSource{
			AzureFile: &corev1.AzureFilePersistentVolumeSource{SecretName: "s", ShareName: "share"},
		}}},
	}
	claim := func(name, volume string) {
		c["persistentvolumeclaims ns/"+name] = &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
	}
	claim("claim", "pv")
	claim("in-tree", "in-tree")
	claim("unbound", "")
	claim("p-ephemeral-v", "pv")
	pvc := func(name string) func(*corev1.Pod) {
		return withVolume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}})
	}
	for _, pod := range []*corev1.Pod{
		podOn("me", "p"), podOn("you", "other"), podOn("", "pending"), mirrorPod(),
		podOn("me", "p-projected", asAccount("account"), projected(corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "vault"}}),
			projected(corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}})),
		podOn("me", "p-certificate", asAccount("account"), projected(corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/signer"}})),
		podOn("me", "p-csi", withVolume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "csi.example.com"}})),
		podOn("me", "p-no-driver", withVolume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "gone.example.com"}})),
		podOn("me", "p-claim", pvc("claim")), podOn("me", "p-in-tree-claim", pvc("in-tree")), podOn("me", "p-unbound", pvc("unbound")), podOn("me", "p-no-claim", pvc("gone")),
		podOn("me", "p-in-tree", withVolume(corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{SecretName: "s", ShareName: "share"}})),
		podOn("me", "p-ephemeral", withVolume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}}})),
	} {
		c["pods ns/"+pod.Name] = pod
	}
	return c
}

// nodeWrite is a request of a node. The resource and the subresource determine the kind.
type nodeWrite struct {
	operation admission.Operation
	resource  schema.GroupVersionResource
	sub, name string
	obj, old  runtime.Object
	namespace string
	who       user.Info
}

func (w nodeWrite) admit(t *testing.T, rights ...string) string {
	t.Helper()
	if w.who == nil {
		w.who = &user.DefaultInfo{Name: "system:node:me", Groups: []string{"system:nodes"}}
	}
	a := admission.NewAttributesRecord(w.obj, w.old, schema.GroupVersionKind{}, w.namespace, w.name, w.resource, w.sub, w.operation, nil, false, w.who)
	p := nodeRestriction{Objects: nodeCluster(), Authorizer: audienceRights(rights)}
	if !p.Handles(w.operation) {
		t.Fatalf("Handles(%s) = false, want true", w.operation)
	}
	err := p.Admit(t.Context(), a, nil)
	switch {
	case err == nil:
		return ""
	case apierrors.IsForbidden(err):
		return "forbidden: " + err.Error()
	case apierrors.IsNotFound(err):
		return "not found: " + err.Error()
	}
	return "error: " + err.Error()
}

func expect(t *testing.T, got, want string) {
	t.Helper()
	if (got == "") != (want == "") || !strings.Contains(got, want) {
		t.Errorf("error of the admission = %q, want %q (empty: admitted)", got, want)
	}
}

var (
	podResource  = corev1.SchemeGroupVersion.WithResource("pods")
	nodeResource = corev1.SchemeGroupVersion.WithResource("nodes")
)

// The rows match kube-apiserver's test of NodeRestriction.
func TestNodesWriteOnlyPodsBoundToThem(t *testing.T) {
	label := func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }
	no, yes := false, true
	evict := func(name string) *policyv1.Eviction {
		return &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	}
	made := "made"
	quantity := resource.MustParse("1")
	for name, c := range map[string]struct {
		write nodeWrite
		want  string
	}{
		"a mirror pod":                   {nodeWrite{operation: admission.Create, obj: mirrorPod()}, ""},
		"an ordinary pod":                {nodeWrite{operation: admission.Create, obj: podOn("me", "p")}, `forbidden: pods "x" is forbidden: pod does not have "kubernetes.io/config.mirror" annotation, node "me" can only create mirror pods`},
		"a mirror pod of another":        {nodeWrite{operation: admission.Create, obj: mirrorPod(func(p *corev1.Pod) { p.Spec.NodeName = "you" })}, `node "me" can only create pods with spec.nodeName set to itself`},
		"a mirror pod of nobody":         {nodeWrite{operation: admission.Create, obj: mirrorPod(func(p *corev1.Pod) { p.Spec.NodeName = "" })}, "can only create pods with spec.nodeName set to itself"},
		"without an owner":               {nodeWrite{operation: admission.Create, obj: mirrorPod(func(p *corev1.Pod) { p.OwnerReferences = nil })}, "with an owner reference set to itself"},
		"with two owners":                {nodeWrite{operation: admission.Create, obj: mirrorPod(func(p *corev1.Pod) { p.OwnerReferences = append(p.OwnerReferences, p.OwnerReferences[0]) })}, "with a single owner reference set to itself"},
		"owned by another node":          {nodeWrite{operation: admission.Create, obj: mirrorPod(owner(func(o *metav1.OwnerReference) { o.Name = "you" }))}, "with an owner reference set to itself"},
		"owned by something else":        {nodeWrite{operation: admission.Create, obj: mirrorPod(owner(func(o *metav1.OwnerReference) { o.Kind = "Pod" }))}, "with an owner reference set to itself"},
		"not controlled":                 {nodeWrite{operation: admission.Create, obj: mirrorPod(owner(func(o *metav1.OwnerReference) { o.Controller = &no }))}, "with a controller owner reference set to itself"},
		"that blocks the owner":          {nodeWrite{operation: admission.Create, obj: mirrorPod(owner(func(o *metav1.OwnerReference) { o.BlockOwnerDeletion = &yes }))}, "must not set blockOwnerDeletion"},
		"owned by the node before":       {nodeWrite{operation: admission.Create, obj: mirrorPod(owner(func(o *metav1.OwnerReference) { o.UID = "old" }))}, "node me UID mismatch: expected old got node-uid"},
		"with an account":                {nodeWrite{operation: admission.Create, obj: mirrorPod(asAccount("a"))}, `node "me" can not create pods that reference serviceaccounts`},
		"with a secret":                  {nodeWrite{operation: admission.Create, obj: mirrorPod(withVolume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}))}, "reference secrets"},
		"with a secret without a name":   {nodeWrite{operation: admission.Create, obj: mirrorPod(withVolume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}))}, "secrets (via secret volumes)"},
		"with a configmap":               {nodeWrite{operation: admission.Create, obj: mirrorPod(withVolume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}))}, "reference configmaps"},
		"with a claim":                   {nodeWrite{operation: admission.Create, obj: mirrorPod(withVolume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}))}, "reference persistentvolumeclaims"},
		"with an ephemeral volume":       {nodeWrite{operation: admission.Create, obj: mirrorPod(withVolume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}))}, "persistentvolumeclaims (via ephemeral volumes)"},
		"with a resource claim":          {nodeWrite{operation: admission.Create, obj: mirrorPod(func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{}} })}, "reference resourceclaims"},
		"with a CSI volume":              {nodeWrite{operation: admission.Create, obj: mirrorPod(withVolume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}}))}, "csidrivers (via CSI volumes)"},
		"with glusterfs":                 {nodeWrite{operation: admission.Create, obj: mirrorPod(withVolume(corev1.VolumeSource{Glusterfs: &corev1.GlusterfsVolumeSource{}}))}, "endpoints (via glusterFS volumes)"},
		"with a trust bundle":            {nodeWrite{operation: admission.Create, obj: mirrorPod(projected(corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}}))}, "reference clustertrustbundles"},
		"with a pod certificate":         {nodeWrite{operation: admission.Create, obj: mirrorPod(projected(corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{}}))}, "reference podcertificates"},
		"with a token":                   {nodeWrite{operation: admission.Create, obj: mirrorPod(projected(corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}))}, "serviceaccounts (via projected volumes)"},
		"with a projection nobody knows": {nodeWrite{operation: admission.Create, obj: mirrorPod(projected(corev1.VolumeProjection{}))}, `unknown source for projected volume "v"`},
		"with a volume nobody knows":     {nodeWrite{operation: admission.Create, obj: mirrorPod(withVolume(corev1.VolumeSource{}))}, "unknown volume type"},
		"with volumes of the host": {nodeWrite{operation: admission.Create, obj: mirrorPod(withVolume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}),
			withVolume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}), projected(corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{}}))}, ""},

		"update of a pod":               {nodeWrite{operation: admission.Update, obj: podOn("me", "p"), old: podOn("me", "p")}, `unexpected operation "UPDATE", node "me" can only create and delete mirror pods`},
		"deletion of its pod":           {nodeWrite{operation: admission.Delete, name: "p"}, ""},
		"deletion of another's":         {nodeWrite{operation: admission.Delete, name: "other"}, `node "me" can only delete pods with spec.nodeName set to itself`},
		"deletion of a pending one":     {nodeWrite{operation: admission.Delete, name: "pending"}, "can only delete pods with spec.nodeName set to itself"},
		"deletion of none":              {nodeWrite{operation: admission.Delete, name: "gone"}, `not found: pods "gone" not found`},
		"deletion, storage is away":     {nodeWrite{operation: admission.Delete, name: "unreadable"}, "storage is away"},
		"deletion of what is now there": {nodeWrite{operation: admission.Delete, name: "p", old: podOn("you", "p")}, "can only delete pods with spec.nodeName set to itself"},
		"pods/log":                      {nodeWrite{operation: admission.Create, sub: "log", name: "p"}, "unexpected pod subresource \"log\", only 'status' and 'eviction' are allowed"},
		"pods/binding":                  {nodeWrite{operation: admission.Create, sub: "binding", name: "p"}, "unexpected pod subresource"},

		"status":                   {nodeWrite{operation: admission.Update, sub: "status", obj: podOn("me", "p"), old: podOn("me", "p")}, ""},
		"status of another's":      {nodeWrite{operation: admission.Update, sub: "status", obj: podOn("me", "p"), old: podOn("you", "p")}, `node "me" can only update pod status for pods with spec.nodeName set to itself`},
		"status of a pending one":  {nodeWrite{operation: admission.Update, sub: "status", obj: podOn("me", "p"), old: podOn("", "p")}, "can only update pod status"},
		"a created status":         {nodeWrite{operation: admission.Create, sub: "status", obj: podOn("me", "p")}, `unexpected operation "CREATE"`},
		"status with a label":      {nodeWrite{operation: admission.Update, sub: "status", obj: podOn("me", "p", label), old: podOn("me", "p")}, `node "me" cannot update labels through pod status`},
		"status without its label": {nodeWrite{operation: admission.Update, sub: "status", obj: podOn("me", "p"), old: podOn("me", "p", label)}, "cannot update labels"},
		"status with a claim": {nodeWrite{operation: admission.Update, sub: "status", obj: podOn("me", "p", func(p *corev1.Pod) {
			p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "c", ResourceClaimName: &made}}
		}), old: podOn("me", "p")}, "cannot update resource claim statues"},
		"status with an extended claim": {nodeWrite{operation: admission.Update, sub: "status", obj: podOn("me", "p", func(p *corev1.Pod) { p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{} }), old: podOn("me", "p")}, "cannot update extended resource claim status"},
		"status with node allocatable": {nodeWrite{operation: admission.Update, sub: "status", old: podOn("me", "p"), obj: podOn("me", "p", func(p *corev1.Pod) {
			p.Status.NodeAllocatableResourceClaimStatuses = []corev1.NodeAllocatableResourceClaimStatus{{Mapping: []corev1.NodeAllocatableMappedResources{{Name: "cpu", Quantity: &quantity}}}}
		})}, "cannot update node allocatable resource claim statuses"},

		"eviction":                 {nodeWrite{operation: admission.Create, sub: "eviction", name: "p", obj: evict("p")}, ""},
		"eviction by its body":     {nodeWrite{operation: admission.Create, sub: "eviction", obj: evict("p")}, ""},
		"eviction of another's":    {nodeWrite{operation: admission.Create, sub: "eviction", name: "other", obj: evict("p")}, "node me can only evict pods with spec.nodeName set to itself"},
		"eviction of nobody":       {nodeWrite{operation: admission.Create, sub: "eviction", obj: evict("")}, "could not determine pod from request data"},
		"eviction of what is gone": {nodeWrite{operation: admission.Create, sub: "eviction", name: "gone", obj: evict("gone")}, "not found"},
		"an updated eviction":      {nodeWrite{operation: admission.Update, sub: "eviction", name: "p", obj: evict("p")}, "unexpected operation UPDATE"},
	} {
		t.Run(name, func(t *testing.T) {
			c.write.resource, c.write.namespace = podResource, "ns"
			if c.write.name == "" && c.write.sub != "eviction" {
				c.write.name = "x"
			}
			expect(t, c.write.admit(t), c.want)
		})
	}
}

func TestNodesWriteOnlyTheirNode(t *testing.T) {
	node := func(change ...func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "me"}}
		for _, f := range change {
			f(n)
		}
		return n
	}
	labels := func(keys ...string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Labels = map[string]string{}
			for _, key := range keys {
				key, value, _ := strings.Cut(key, "=")
				n.Labels[key] = value
			}
		}
	}
	taint := func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "t", Effect: corev1.TaintEffectNoSchedule}} }
	config := func(name string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			//lint:ignore SA1019 it is refused
			n.Spec.ConfigSource = &corev1.NodeConfigSource{ConfigMap: &corev1.ConfigMapNodeConfigSource{Name: name}}
		}
	}
	owned := func(n *corev1.Node) { n.OwnerReferences = []metav1.OwnerReference{{Name: "o"}} }
	own := labels("kubernetes.io/hostname=me", "kubernetes.io/os=linux", "kubernetes.io/arch=arm64", "beta.kubernetes.io/os=linux", "topology.kubernetes.io/zone=a",
		"failure-domain.beta.kubernetes.io/region=r", "node.kubernetes.io/instance-type=x", "kubelet.kubernetes.io/x=y", "foo.node.kubernetes.io/x=y", "example.com/role=db", "plain=x")
	for name, c := range map[string]struct {
		write nodeWrite
		want  string
	}{
		"create":                        {nodeWrite{operation: admission.Create, obj: node()}, ""},
		"create with taints":            {nodeWrite{operation: admission.Create, obj: node(taint)}, ""},
		"create with labels":            {nodeWrite{operation: admission.Create, obj: node(own)}, ""},
		"create with a role":            {nodeWrite{operation: admission.Create, obj: node(labels("node-role.kubernetes.io/master", "a=b", "x.k8s.io/y"))}, `forbidden: nodes "me" is forbidden: node "me" is not allowed to set the following labels: node-role.kubernetes.io/master, x.k8s.io/y`},
		"create with what is reserved":  {nodeWrite{operation: admission.Create, obj: node(labels("node-restriction.kubernetes.io/pci", "foo.node-restriction.kubernetes.io/x"))}, "foo.node-restriction.kubernetes.io/x, node-restriction.kubernetes.io/pci"},
		"create with a configuration":   {nodeWrite{operation: admission.Create, obj: node(config("c"))}, "non-nil configSource"},
		"create of another":             {nodeWrite{operation: admission.Create, name: "you", obj: node()}, `node "me" is not allowed to modify node "you"`},
		"update":                        {nodeWrite{operation: admission.Update, obj: node(own, taint), old: node(taint, labels("node-restriction.kubernetes.io/pci=1"), func(n *corev1.Node) { n.Labels = nil })}, ""},
		"update of another":             {nodeWrite{operation: admission.Update, name: "you", obj: node(), old: node()}, "is not allowed to modify node"},
		"update beside what is kept":    {nodeWrite{operation: admission.Update, obj: node(labels("node-restriction.kubernetes.io/pci=1", "a=b")), old: node(labels("node-restriction.kubernetes.io/pci=1", "c=d"))}, ""},
		"a reserved label is added":     {nodeWrite{operation: admission.Update, obj: node(labels("node-restriction.kubernetes.io/pci=1")), old: node()}, "is not allowed to modify labels: node-restriction.kubernetes.io/pci"},
		"a reserved label is removed":   {nodeWrite{operation: admission.Update, obj: node(), old: node(labels("node-restriction.kubernetes.io/pci=1"))}, "is not allowed to modify labels"},
		"a reserved label is changed":   {nodeWrite{operation: admission.Update, obj: node(labels("other.k8s.io/x=1")), old: node(labels("other.k8s.io/x=2"))}, "is not allowed to modify labels: other.k8s.io/x"},
		"a taint is added":              {nodeWrite{operation: admission.Update, obj: node(taint), old: node()}, `node "me" is not allowed to modify taints`},
		"a taint is removed":            {nodeWrite{operation: admission.Update, obj: node(), old: node(taint)}, "is not allowed to modify taints"},
		"a taint is removed, by status": {nodeWrite{operation: admission.Update, sub: "status", obj: node(), old: node(taint)}, "is not allowed to modify taints"},
		"an owner is added":             {nodeWrite{operation: admission.Update, obj: node(owned), old: node()}, "is not allowed to modify ownerReferences"},
		"a configuration is added":      {nodeWrite{operation: admission.Update, obj: node(config("c")), old: node()}, "is not allowed to update configSource to a new non-nil configSource"},
		"a configuration is changed":    {nodeWrite{operation: admission.Update, obj: node(config("c")), old: node(config("d"))}, "configSource"},
		"a configuration is kept":       {nodeWrite{operation: admission.Update, obj: node(config("c")), old: node(config("c"))}, ""},
		"a configuration is removed":    {nodeWrite{operation: admission.Update, obj: node(), old: node(config("c"))}, ""},
		"delete":                        {nodeWrite{operation: admission.Delete, old: node()}, ""},
		"delete of another":             {nodeWrite{operation: admission.Delete, name: "you", old: node()}, "is not allowed to modify node"},
		"a node without a name":         {nodeWrite{operation: admission.Create, obj: node(), who: &user.DefaultInfo{Name: "system:node:", Groups: []string{"system:nodes"}}}, `could not determine node from user "system:node:"`},
		"somebody who is no node":       {nodeWrite{operation: admission.Update, name: "you", obj: node(taint), old: node(), who: &user.DefaultInfo{Name: "system:node:me"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.write.resource = nodeResource
			if c.write.name == "" {
				c.write.name = "me"
			}
			expect(t, c.write.admit(t), c.want)
		})
	}
}

func signingRequest(t *testing.T, signer, commonName string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: commonName, Organization: []string{"system:nodes"}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return csr(signer, func(r *certificatesv1.CertificateSigningRequest) {
		r.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	})
}

func TestNodesWriteOnlyLeasesAndCSINodesOfTheirName(t *testing.T) {
	leases, csiNodes := coordinationv1.SchemeGroupVersion.WithResource("leases"), storagev1.SchemeGroupVersion.WithResource("csinodes")
	slices, requests := resourcev1.SchemeGroupVersion.WithResource("resourceslices"), certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests")
	claims := corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	lease := func(name string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	csiNode := func(name string) *storagev1.CSINode {
		return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	slice := func(node string) *resourcev1.ResourceSlice {
		return &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{NodeName: &node}}
	}
	claim := func(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", ResourceVersion: "1"}}
		change(c)
		return c
	}
	asIs := func(*corev1.PersistentVolumeClaim) {}
	const serving, client = certificatesv1.KubeletServingSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName
	for name, c := range map[string]struct {
		write nodeWrite
		want  string
	}{
		"its lease":                   {nodeWrite{operation: admission.Create, resource: leases, namespace: "kube-node-lease", obj: lease("me")}, ""},
		"another's lease":             {nodeWrite{operation: admission.Create, resource: leases, namespace: "kube-node-lease", obj: lease("you")}, "can only access node lease with the same name as the requesting node"},
		"a lease elsewhere":           {nodeWrite{operation: admission.Create, resource: leases, namespace: "kube-system", obj: lease("me")}, `can only access leases in the "kube-node-lease" system namespace`},
		"its lease is renewed":        {nodeWrite{operation: admission.Update, resource: leases, namespace: "kube-node-lease", name: "me", obj: lease("me"), old: lease("me")}, ""},
		"another's lease is deleted":  {nodeWrite{operation: admission.Delete, resource: leases, namespace: "kube-node-lease", name: "you"}, "can only access node lease"},
		"its CSINode":                 {nodeWrite{operation: admission.Create, resource: csiNodes, obj: csiNode("me")}, ""},
		"another's CSINode":           {nodeWrite{operation: admission.Create, resource: csiNodes, obj: csiNode("you")}, "can only access CSINode with the same name as the requesting node"},
		"another's CSINode, updated":  {nodeWrite{operation: admission.Update, resource: csiNodes, name: "you", obj: csiNode("you")}, "can only access CSINode"},
		"the status of its CSINode":   {nodeWrite{operation: admission.Update, resource: csiNodes, name: "me", sub: "status", obj: csiNode("me")}, "CSIVolumeHealth feature gate is disabled"},
		"its slice":                   {nodeWrite{operation: admission.Create, resource: slices, obj: slice("me")}, ""},
		"another's slice":             {nodeWrite{operation: admission.Create, resource: slices, obj: slice("you")}, "can only create ResourceSlice with the same NodeName as the requesting node"},
		"a slice of all nodes":        {nodeWrite{operation: admission.Create, resource: slices, obj: &resourcev1.ResourceSlice{}}, "can only create ResourceSlice"},
		"its slice is deleted":        {nodeWrite{operation: admission.Delete, resource: slices, old: slice("me")}, ""},
		"another's slice is deleted":  {nodeWrite{operation: admission.Delete, resource: slices, old: slice("you")}, "can only delete ResourceSlice with the same NodeName as the requesting node"},
		"a slice is updated":          {nodeWrite{operation: admission.Update, resource: slices, obj: slice("you"), old: slice("you")}, ""}, // rejected by the authorizer
		"a client certificate":        {nodeWrite{operation: admission.Create, resource: requests, obj: signingRequest(t, client, "system:node:me")}, ""},
		"a serving certificate":       {nodeWrite{operation: admission.Create, resource: requests, obj: signingRequest(t, serving, "system:node:me")}, ""},
		"another's certificate":       {nodeWrite{operation: admission.Create, resource: requests, obj: signingRequest(t, client, "system:node:you")}, "can only create a node CSR with CN=system:node:me"},
		"another's serving name":      {nodeWrite{operation: admission.Create, resource: requests, obj: signingRequest(t, serving, "system:node:me2")}, "can only create a node CSR"},
		"of another signer":           {nodeWrite{operation: admission.Create, resource: requests, obj: signingRequest(t, "example.com/x", "anything")}, ""},
		"no request":                  {nodeWrite{operation: admission.Create, resource: requests, obj: csr(client)}, "unable to parse csr"},
		"a claim":                     {nodeWrite{operation: admission.Update, resource: claims, name: "c", obj: claim(asIs), old: claim(asIs)}, "may only update PVC status"},
		"a claim is deleted":          {nodeWrite{operation: admission.Delete, resource: claims, name: "c"}, "may only update PVC status"},
		"the status of a claim, made": {nodeWrite{operation: admission.Create, resource: claims, sub: "status", obj: claim(asIs)}, `unexpected operation "CREATE"`},
		"the size of a claim": {nodeWrite{operation: admission.Update, resource: claims, sub: "status", old: claim(asIs), obj: claim(func(c *corev1.PersistentVolumeClaim) {
			c.ResourceVersion, c.ManagedFields = "", []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
			c.Status.Capacity = corev1.ResourceList{"storage": resource.MustParse("2Gi")}
			c.Status.AllocatedResources = c.Status.Capacity
			c.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{"storage": corev1.PersistentVolumeClaimNodeResizeInProgress}
			c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimResizing}}
		})}, ""},
		"the phase of a claim":      {nodeWrite{operation: admission.Update, resource: claims, sub: "status", old: claim(asIs), obj: claim(func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost })}, `node "me" is not allowed to update fields other than status.quantity and status.conditions`},
		"the labels of a claim":     {nodeWrite{operation: admission.Update, resource: claims, sub: "status", old: claim(asIs), obj: claim(func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"a": "b"} })}, "is not allowed to update fields"},
		"what is nobody's business": {nodeWrite{operation: admission.Create, resource: corev1.SchemeGroupVersion.WithResource("events"), obj: &corev1.Event{}}, ""},
	} {
		t.Run(name, func(t *testing.T) { expect(t, c.write.admit(t), c.want) })
	}
}

func TestNodesRequestTokensOnlyForTheirPods(t *testing.T) {
	bound := func(pod, uid string, audiences ...string) *authenticationv1.TokenRequest {
		return &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			Audiences: audiences, BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod, UID: "pod-uid"},
		}}
	}
	ref := func(change func(*authenticationv1.BoundObjectReference)) *authenticationv1.TokenRequest {
		r := bound("p-projected", "")
		change(r.Spec.BoundObjectRef)
		return r
	}
	const right = "request-serviceaccounts-token-audience "
	for name, c := range map[string]struct {
		request *authenticationv1.TokenRequest
		right   string
		want    string
	}{
		"bound to nothing":                        {&authenticationv1.TokenRequest{}, "", "node requested token not bound to a pod"},
		"bound to a secret":                       {ref(func(r *authenticationv1.BoundObjectReference) { r.Kind = "Secret" }), "", "node requested token not bound to a pod"},
		"bound to a node":                         {ref(func(r *authenticationv1.BoundObjectReference) { r.Kind, r.Name = "Node", "me" }), "", "node requested token not bound to a pod"},
		"without a uid":                           {ref(func(r *authenticationv1.BoundObjectReference) { r.UID = "" }), "", "with a pod binding without a uid"},
		"another uid":                             {ref(func(r *authenticationv1.BoundObjectReference) { r.UID = "old" }), "", "the UID in the bound object reference (old) does not match the UID in record"},
		"bound to a pod that is gone":             {bound("gone", ""), "", "not found"},
		"bound to a pod elsewhere":                {bound("other", ""), "", "bound to a pod scheduled on a different node"},
		"two audiences":                           {bound("p-projected", "", "vault", ""), "", "node may only request 0 or 1 audiences"},
		"the default audience":                    {bound("p-projected", ""), "", ""},
		"a projected audience":                    {bound("p-projected", "", "vault"), "", ""},
		"an audience that no volume has":          {bound("p-projected", "", "other"), "", `system:node:me is not authorized to request tokens for audience "other"`},
		"no volume at all":                        {bound("p", ""), "", `is not authorized to request tokens for audience ""`},
		"an audience that the node may request":   {bound("p-projected", "", "other"), right + "other ns/account", ""},
		"an audience for another account":         {bound("p-projected", "", "other"), right + "other ns/another", "is not authorized"},
		"the authorizer fails":                    {bound("p", "", "broken"), "", `error authorizing system:node:me to request tokens for audience "broken": no rules`},
		"of a CSI volume":                         {bound("p-csi", "", "csi"), "", ""},
		"of a CSI volume, by default":             {bound("p-csi", ""), "", ""},
		"not of a CSI volume":                     {bound("p-csi", "", "vault"), "", "is not authorized"},
		"of a driver that is gone":                {bound("p-no-driver", "", "csi"), "", `error validating audience "csi": csidrivers "gone.example.com" not found`},
		"of a claim":                              {bound("p-claim", "", "csi"), "", ""},
		"not of a claim":                          {bound("p-claim", "", "vault"), "", "is not authorized"},
		"of a claim that is gone":                 {bound("p-no-claim", "", "csi"), "", `persistentvolumeclaims "gone" not found`},
		"of a claim without a volume":             {bound("p-unbound", "", "csi"), "", `persistentvolumes "" not found`},
		"of an ephemeral volume":                  {bound("p-ephemeral", "", "csi"), "", ""},
		"of a volume that a driver has replaced":  {bound("p-in-tree", "", "azure"), "", ""},
		"of such a claim":                         {bound("p-in-tree-claim", "", "azure"), "", ""},
		"of no volume that a driver has replaced": {bound("p-in-tree", "", "csi"), "", "is not authorized"},
	} {
		t.Run(name, func(t *testing.T) {
			w := nodeWrite{operation: admission.Create, resource: corev1.SchemeGroupVersion.WithResource("serviceaccounts"), sub: "token", namespace: "ns", name: "account", obj: c.request}
			expect(t, w.admit(t, c.right), c.want)
		})
	}
}

// The drivers that replaced volumes are the drivers to which k8s.io/csi-translation-lib translates.
func TestInTreeVolumesMapToCSIDrivers(t *testing.T) {
	translator, p := csitranslation.New(), nodeRestriction{}
	for name, source := range map[string]corev1.VolumeSource{
		"EBS":       {AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}},
		"GCE":       {GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "p"}},
		"disk":      {AzureDisk: &corev1.AzureDiskVolumeSource{DiskName: "d", DataDiskURI: "/subscriptions/s"}},
		"Cinder":    {Cinder: &corev1.CinderVolumeSource{VolumeID: "v"}},
		"file":      {AzureFile: &corev1.AzureFileVolumeSource{SecretName: "s", ShareName: "share"}},
		"vSphere":   {VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{VolumePath: "p"}},
		"Portworx":  {PortworxVolume: &corev1.PortworxVolumeSource{VolumeID: "v"}},
		"NFS":       {NFS: &corev1.NFSVolumeSource{}},
		"Flex":      {FlexVolume: &corev1.FlexVolumeSource{}},
		"host path": {HostPath: &corev1.HostPathVolumeSource{}},
	} {
		volume, want := &corev1.Volume{Name: "v", VolumeSource: source}, ""
		if translator.IsInlineMigratable(volume) {
			translated, err := translator.TranslateInTreeInlineVolumeToCSI(klog.Background(), volume, "ns")
			if err != nil {
				t.Fatal(err)
			}
			want = translated.Spec.CSI.Driver
		}
		if got, err := p.driverOf(t.Context(), podOn("me", "p"), volume); got != want || err != nil {
			t.Errorf("driverOf the %s volume = %q, %v, want %q", name, got, err, want)
		}
	}
}

func TestNodesRequestCertificatesOnlyForTheirPods(t *testing.T) {
	request := func(change ...func(*certificatesv1.PodCertificateRequestSpec)) *certificatesv1.PodCertificateRequest {
		r := &certificatesv1.PodCertificateRequest{Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: "example.com/signer", NodeName: "me", NodeUID: "node-uid", PodName: "p-certificate", PodUID: "pod-uid",
			ServiceAccountName: "account", ServiceAccountUID: "account-uid",
		}}
		for _, f := range change {
			f(&r.Spec)
		}
		return r
	}
	type spec = certificatesv1.PodCertificateRequestSpec
	const right = "request-serviceaccounts-podcertificate-signer example.com:other ns/account"
	for name, c := range map[string]struct {
		write nodeWrite
		want  string
	}{
		"as it is":                     {nodeWrite{operation: admission.Create, obj: request()}, ""},
		"for another node":             {nodeWrite{operation: admission.Create, obj: request(func(s *spec) { s.NodeName = "you" })}, `forbidden: podcertificaterequests.certificates.k8s.io "x" is forbidden: PodCertificateRequest.Spec.NodeName="you", which is not the requesting node "me"`},
		"for the node before":          {nodeWrite{operation: admission.Create, obj: request(func(s *spec) { s.NodeUID = "old" })}, `error: PodCertificateRequest for pod "ns/p-certificate" names node UID "old", inconsistent with the running node ("node-uid")`},
		"for a pod that is gone":       {nodeWrite{operation: admission.Create, obj: request(func(s *spec) { s.PodName = "gone" })}, `while retrieving pod "ns/gone" named in the PodCertificateRequest`},
		"for a pod, storage is away":   {nodeWrite{operation: admission.Create, obj: request(func(s *spec) { s.PodName = "unreadable" })}, "forbidden: "},
		"for the pod before":           {nodeWrite{operation: admission.Create, obj: request(func(s *spec) { s.PodUID = "old" })}, `error: PodCertificateRequest for pod "ns/p-certificate" contains pod UID ("old")`},
		"for a pod elsewhere":          {nodeWrite{operation: admission.Create, obj: request(func(s *spec) { s.PodName = "other" })}, `forbidden: podcertificaterequests.certificates.k8s.io "x" is forbidden: pod "ns/other" is not running on node "me"`},
		"for a mirror pod":             {nodeWrite{operation: admission.Create, obj: request(func(s *spec) { s.PodName = "static-me" })}, "is a mirror pod"},
		"for another account":          {nodeWrite{operation: admission.Create, obj: request(func(s *spec) { s.ServiceAccountName = "another" })}, `contains serviceAccountName ("another") that differs from running pod ("account")`},
		"for the account before":       {nodeWrite{operation: admission.Create, obj: request(func(s *spec) { s.ServiceAccountUID = "old" })}, `error: PodCertificateRequest for pod "ns/account" names service account UID "old"`},
		"of a signer not mounted":      {nodeWrite{operation: admission.Create, obj: request(func(s *spec) { s.SignerName = "example.com/third" })}, `pod "ns/p-certificate" does not mount a podCertificate projected volume for signer "example.com/third"`},
		"of a signer that it may have": {nodeWrite{operation: admission.Create, obj: request(func(s *spec) { s.SignerName = "example.com/other" })}, ""},
		"the authorizer fails":         {nodeWrite{operation: admission.Create, obj: request(func(s *spec) { s.SignerName = "broken" })}, `error authorizing system:node:me to request podcertificaterequests for signer "broken": no rules`},
		"updated":                      {nodeWrite{operation: admission.Update, obj: request()}, "unexpected operation UPDATE"},
		"its status":                   {nodeWrite{operation: admission.Create, sub: "status", obj: request()}, "unexpected subresource status"},
	} {
		t.Run(name, func(t *testing.T) {
			c.write.resource, c.write.namespace, c.write.name = certificatesv1.SchemeGroupVersion.WithResource("podcertificaterequests"), "ns", "x"
			expect(t, c.write.admit(t, right), c.want)
		})
	}
}
