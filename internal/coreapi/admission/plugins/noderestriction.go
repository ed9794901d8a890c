package plugins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	kubeletapis "k8s.io/kubelet/pkg/apis"

	"portico.dev/internal/nodes/podrefs"
	"portico.dev/internal/request"
)

// nodeRestriction limits the writes of a node to its own objects: its Node, the pods that run on it, and so on. The Node
// authorizer performs the checks that do not depend on the body of a request, and this plugin the others.
type nodeRestriction struct {
	Objects    nodeObjects
	Authorizer authorizer.UnconditionalAuthorizer
}

// nodeObjects reads the objects needed for a decision. It reads from storage, not from caches, because a pod may just have been
// replaced by a pod with the same name on another node.
type nodeObjects interface {
	Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	Node(ctx context.Context, name string) (*corev1.Node, error)
	ServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error)
	VolumeClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
	Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
	CSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error)
}

var _ admission.MutationInterface = nodeRestriction{}

func (nodeRestriction) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Update || operation == admission.Delete
}

// Admit changes nothing. It keeps upstream's position in the order: before plugins that change a pod, such as ServiceAccount.
func (p nodeRestriction) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	node, isNode := request.Node(a.GetUserInfo())
	if !isNode {
		return nil
	}
	if node == "" {
		return admission.NewForbidden(a, fmt.Errorf("could not determine node from user %q", a.GetUserInfo().GetName()))
	}
	if check, ok := nodeChecks[a.GetResource().GroupResource()]; ok {
		return check(p, ctx, node, a)
	}
	return nil
}

// nodeChecks contains the checks by resource. Only the authorizer checks other resources.
var nodeChecks = map[schema.GroupResource]func(nodeRestriction, context.Context, string, admission.Attributes) error{
	corev1.Resource("pods"):                               nodeRestriction.pods,
	corev1.Resource("nodes"):                              nodeRestriction.nodes,
	corev1.Resource("persistentvolumeclaims"):             nodeRestriction.volumeClaims,
	corev1.Resource("serviceaccounts"):                    nodeRestriction.tokens,
	coordinationv1.Resource("leases"):                     nodeRestriction.leases,
	storagev1.Resource("csinodes"):                        nodeRestriction.csiNodes,
	resourcev1.Resource("resourceslices"):                 nodeRestriction.resourceSlices,
	certificatesv1.Resource("certificatesigningrequests"): nodeRestriction.signingRequests,
	certificatesv1.Resource("podcertificaterequests"):     nodeRestriction.podCertificates,
}

// nodeForbidden returns a Forbidden error with a message.
func nodeForbidden(a admission.Attributes, format string, args ...any) error {
	return admission.NewForbidden(a, fmt.Errorf(format, args...))
}

// notFoundOr returns err if an object does not exist, so that the client can distinguish this case, and otherwise a Forbidden
// error.
func notFoundOr(a admission.Attributes, err error) error {
	if apierrors.IsNotFound(err) {
		return err
	}
	return admission.NewForbidden(a, err)
}

func (p nodeRestriction) pods(ctx context.Context, node string, a admission.Attributes) error {
	switch subresource := a.GetSubresource(); subresource {
	case "":
		switch a.GetOperation() {
		case admission.Create:
			return p.createMirror(ctx, node, a)
		case admission.Delete:
			return p.ownPod(ctx, node, a, "node %q can only delete pods with spec.nodeName set to itself")
		}
		return nodeForbidden(a, "unexpected operation %q, node %q can only create and delete mirror pods", a.GetOperation(), node)
	case "status":
		return podStatusOfNode(node, a)
	case "eviction":
		return p.evictions(ctx, node, a)
	default:
		return nodeForbidden(a, "unexpected pod subresource %q, only 'status' and 'eviction' are allowed", subresource)
	}
}

// ownPod refuses requests for the pod of another node. For a deletion the old object is the pod.
func (p nodeRestriction) ownPod(ctx context.Context, node string, a admission.Attributes, message string) error {
	pod, known := a.GetOldObject().(*corev1.Pod)
	if !known {
		var err error
		if pod, err = p.Objects.Pod(ctx, a.GetNamespace(), a.GetName()); err != nil {
			return notFoundOr(a, err)
		}
	}
	if pod.Spec.NodeName != node {
		return nodeForbidden(a, message, node)
	}
	return nil
}

// createMirror allows mirror pods on the node. They must be owned by the Node object and must not refer to other objects.
func (p nodeRestriction) createMirror(ctx context.Context, node string, a admission.Attributes) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok {
		return nodeForbidden(a, "unexpected type %T", a.GetObject())
	}
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; !mirror {
		return nodeForbidden(a, "pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey, node)
	}
	if pod.Spec.NodeName != node {
		return nodeForbidden(a, "node %q can only create pods with spec.nodeName set to itself", node)
	}
	if len(pod.OwnerReferences) > 1 {
		return nodeForbidden(a, "node %q can only create pods with a single owner reference set to itself", node)
	}
	if len(pod.OwnerReferences) == 0 {
		return nodeForbidden(a, "node %q can only create pods with an owner reference set to itself", node)
	}
	switch owner := pod.OwnerReferences[0]; {
	case owner.APIVersion != "v1" || owner.Kind != "Node" || owner.Name != node:
		return nodeForbidden(a, "node %q can only create pods with an owner reference set to itself", node)
	case owner.Controller == nil || !*owner.Controller:
		return nodeForbidden(a, "node %q can only create pods with a controller owner reference set to itself", node)
	case owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion:
		return nodeForbidden(a, "node %q must not set blockOwnerDeletion on an owner reference", node)
	default:
		object, err := p.Objects.Node(ctx, node)
		if apierrors.IsNotFound(err) {
			return err
		}
		if err != nil {
			return nodeForbidden(a, "error looking up node %s to verify uid: %w", node, err)
		}
		if owner.UID != object.UID {
			return nodeForbidden(a, "node %s UID mismatch: expected %s got %s", node, owner.UID, object.UID)
		}
	}
	referenced, err := referencesOf(pod)
	if err != nil {
		return nodeForbidden(a, "error checking mirror pod for API references: %w", err)
	}
	if referenced != "" {
		return nodeForbidden(a, "node %q can not create pods that reference %s", node, referenced)
	}
	return nil
}

// referencesOf returns a kind of objects that a pod refers to, or "". A volume of an unknown type is an error, because it might
// refer to an object.
func referencesOf(pod *corev1.Pod) (string, error) {
	switch {
	case pod.Spec.ServiceAccountName != "":
		return "serviceaccounts", nil
	case podrefs.Any(podrefs.Secrets(&pod.Spec)):
		return "secrets", nil
	case podrefs.Any(podrefs.ConfigMaps(&pod.Spec)):
		return "configmaps", nil
	case len(pod.Spec.ResourceClaims) > 0:
		return "resourceclaims", nil
	}
	for i := range pod.Spec.Volumes {
		if referenced, err := volumeReferences(&pod.Spec.Volumes[i]); referenced != "" || err != nil {
			return referenced, err
		}
	}
	return "", nil
}

func volumeReferences(v *corev1.Volume) (string, error) {
	switch {
	case v.AWSElasticBlockStore != nil, v.AzureDisk != nil, v.CephFS != nil, v.Cinder != nil, v.DownwardAPI != nil, v.EmptyDir != nil, v.FC != nil,
		v.FlexVolume != nil, v.Flocker != nil, v.GCEPersistentDisk != nil, v.GitRepo != nil, v.HostPath != nil, v.Image != nil, v.ISCSI != nil,
		v.NFS != nil, v.PhotonPersistentDisk != nil, v.PortworxVolume != nil, v.Quobyte != nil, v.RBD != nil, v.ScaleIO != nil,
		v.StorageOS != nil, v.VsphereVolume != nil:
		return "", nil
	case v.ConfigMap != nil:
		return "configmaps (via configmap volumes)", nil
	case v.Secret != nil:
		return "secrets (via secret volumes)", nil
	case v.CSI != nil:
		return "csidrivers (via CSI volumes)", nil
	case v.Glusterfs != nil:
		return "endpoints (via glusterFS volumes)", nil
	case v.PersistentVolumeClaim != nil:
		return "persistentvolumeclaims", nil
	case v.Ephemeral != nil:
		return "persistentvolumeclaims (via ephemeral volumes)", nil
	case v.AzureFile != nil:
		return "secrets (via azureFile volumes)", nil
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			if referenced, known := projectionReferences(&v.Projected.Sources[i]); referenced != "" || !known {
				return referenced, unlessKnown(known, "unknown source for projected volume %q", v.Name)
			}
		}
		return "", nil
	}
	return "", fmt.Errorf("unknown volume type for volume  %q", v.Name)
}

func unlessKnown(known bool, format, name string) error {
	if known {
		return nil
	}
	return fmt.Errorf(format, name)
}

func projectionReferences(s *corev1.VolumeProjection) (referenced string, known bool) {
	switch {
	case s.ConfigMap != nil:
		return "configmaps (via projected volumes)", true
	case s.Secret != nil:
		return "secrets (via projected volumes)", true
	case s.ServiceAccountToken != nil:
		return "serviceaccounts (via projected volumes)", true
	case s.ClusterTrustBundle != nil:
		return "clustertrustbundles", true
	case s.PodCertificate != nil:
		return "podcertificates", true
	}
	return "", s.DownwardAPI != nil
}

// podStatusOfNode allows status updates of the node's pods, except for fields that other components rely on.
func podStatusOfNode(node string, a admission.Attributes) error {
	if a.GetOperation() != admission.Update {
		return nodeForbidden(a, "unexpected operation %q", a.GetOperation())
	}
	old, ok := a.GetOldObject().(*corev1.Pod)
	if !ok {
		return nodeForbidden(a, "unexpected type %T", a.GetOldObject())
	}
	if old.Spec.NodeName != node {
		return nodeForbidden(a, "node %q can only update pod status for pods with spec.nodeName set to itself", node)
	}
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok {
		return nodeForbidden(a, "unexpected type %T", a.GetObject())
	}
	same := apiequality.Semantic.DeepEqual // treats nil and empty as equal
	switch {
	case !labels.Equals(old.Labels, pod.Labels):
		return nodeForbidden(a, "node %q cannot update labels through pod status", node)
	case !same(old.Status.ResourceClaimStatuses, pod.Status.ResourceClaimStatuses):
		return nodeForbidden(a, "node %q cannot update resource claim statues", node)
	case !same(old.Status.ExtendedResourceClaimStatus, pod.Status.ExtendedResourceClaimStatus):
		return nodeForbidden(a, "node %q cannot update extended resource claim status", node)
	case !same(old.Status.NodeAllocatableResourceClaimStatuses, pod.Status.NodeAllocatableResourceClaimStatuses):
		return nodeForbidden(a, "node %q cannot update node allocatable resource claim statuses", node)
	}
	return nil
}

func (p nodeRestriction) evictions(ctx context.Context, node string, a admission.Attributes) error {
	if a.GetOperation() != admission.Create {
		return nodeForbidden(a, "unexpected operation %s", a.GetOperation())
	}
	eviction, ok := a.GetObject().(*policyv1.Eviction)
	if !ok {
		return nodeForbidden(a, "unexpected type %T", a.GetObject())
	}
	// The name in the URL determines the evicted pod, not the body.
	name := cmp.Or(a.GetName(), eviction.Name)
	if name == "" {
		return nodeForbidden(a, "could not determine pod from request data")
	}
	pod, err := p.Objects.Pod(ctx, a.GetNamespace(), name)
	if err != nil {
		return notFoundOr(a, err)
	}
	if pod.Spec.NodeName != node {
		return nodeForbidden(a, "node %s can only evict pods with spec.nodeName set to itself", node)
	}
	return nil
}

// volumeClaims allows updates of the fields that a kubelet writes after it has resized a volume.
func (nodeRestriction) volumeClaims(_ context.Context, node string, a admission.Attributes) error {
	if a.GetSubresource() != "status" {
		return nodeForbidden(a, "may only update PVC status")
	}
	if a.GetOperation() != admission.Update {
		return nodeForbidden(a, "unexpected operation %q", a.GetOperation())
	}
	old, ok := a.GetOldObject().(*corev1.PersistentVolumeClaim)
	if !ok {
		return nodeForbidden(a, "unexpected type %T", a.GetOldObject())
	}
	claim, ok := a.GetObject().(*corev1.PersistentVolumeClaim)
	if !ok {
		return nodeForbidden(a, "unexpected type %T", a.GetObject())
	}
	old, claim = withoutResize(old), withoutResize(claim)
	if !apiequality.Semantic.DeepEqual(old, claim) {
		return nodeForbidden(a, "node %q is not allowed to update fields other than status.quantity and status.conditions: %v", node, diff.Diff(old, claim))
	}
	return nil
}

// withoutResize returns a copy of a claim without the fields that a node may write, and without the fields that an update may
// omit.
func withoutResize(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	rest := claim.DeepCopy()
	rest.ResourceVersion, rest.ManagedFields = "", nil
	rest.Status.Capacity, rest.Status.Conditions = nil, nil
	rest.Status.AllocatedResourceStatuses, rest.Status.AllocatedResources = nil, nil
	return rest
}

// nodes allows a node to register itself and to report its status, but not to set labels, taints and owners that affect
// scheduling.
func (nodeRestriction) nodes(_ context.Context, node string, a admission.Attributes) error {
	if a.GetName() != node {
		return nodeForbidden(a, "node %q is not allowed to modify node %q", node, a.GetName())
	}
	switch a.GetOperation() {
	case admission.Create:
		object, ok := a.GetObject().(*corev1.Node)
		if !ok {
			return nodeForbidden(a, "unexpected type %T", a.GetObject())
		}
		if hasConfigSource(object) {
			return nodeForbidden(a, "node %q is not allowed to create pods with a non-nil configSource", node)
		}
		if forbidden := forbiddenLabels(object.Labels, nil); len(forbidden) > 0 {
			return nodeForbidden(a, "node %q is not allowed to set the following labels: %s", node, strings.Join(forbidden, ", "))
		}
	case admission.Update:
		object, ok := a.GetObject().(*corev1.Node)
		if !ok {
			return nodeForbidden(a, "unexpected type %T", a.GetObject())
		}
		old, ok := a.GetOldObject().(*corev1.Node)
		if !ok {
			return nodeForbidden(a, "unexpected type %T", a.GetOldObject())
		}
		same := apiequality.Semantic.DeepEqual
		switch {
		case hasConfigSource(object) && !sameConfigSource(object, old):
			return nodeForbidden(a, "node %q is not allowed to update configSource to a new non-nil configSource", node)
		case !same(object.Spec.Taints, old.Spec.Taints):
			return nodeForbidden(a, "node %q is not allowed to modify taints", node)
		case !same(object.OwnerReferences, old.OwnerReferences):
			return nodeForbidden(a, "node %q is not allowed to modify ownerReferences", node)
		}
		if forbidden := forbiddenLabels(object.Labels, old.Labels); len(forbidden) > 0 {
			return nodeForbidden(a, "is not allowed to modify labels: %s", strings.Join(forbidden, ", "))
		}
	}
	return nil
}

// spec.configSource has no effect any more, but kube-apiserver still refuses it for nodes.

func hasConfigSource(node *corev1.Node) bool {
	//lint:ignore SA1019 it is refused
	return node.Spec.ConfigSource != nil
}

func sameConfigSource(node, old *corev1.Node) bool {
	//lint:ignore SA1019 it is refused
	return apiequality.Semantic.DeepEqual(node.Spec.ConfigSource, old.Spec.ConfigSource)
}

// forbiddenLabels returns the sorted changed labels that a node may not write: labels reserved for administrators, and
// kubernetes.io and k8s.io labels that kubelets do not set.
func forbiddenLabels(labels, old map[string]string) []string {
	forbidden := sets.New[string]()
	for _, pair := range [][2]map[string]string{{labels, old}, {old, labels}} {
		for key, value := range pair[0] {
			if before, there := pair[1][key]; (!there || before != value) && isForbiddenLabel(key) {
				forbidden.Insert(key)
			}
		}
	}
	return sets.List(forbidden)
}

func isForbiddenLabel(key string) bool {
	domain, _, prefixed := strings.Cut(key, "/")
	if !prefixed {
		return false
	}
	within := func(parent string) bool { return domain == parent || strings.HasSuffix(domain, "."+parent) }
	return within(corev1.LabelNamespaceNodeRestriction) || (within("kubernetes.io") || within("k8s.io")) && !kubeletapis.IsKubeletLabel(key)
}

func (nodeRestriction) leases(_ context.Context, node string, a admission.Attributes) error {
	if a.GetNamespace() != corev1.NamespaceNodeLease {
		return nodeForbidden(a, "can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	}
	return ownName(node, a, "can only access node lease with the same name as the requesting node")
}

// ownName refuses objects with a name other than the node's. The name of a create is in the object.
func ownName(node string, a admission.Attributes, message string) error {
	name := a.GetName()
	if a.GetOperation() == admission.Create {
		object, err := meta.Accessor(a.GetObject())
		if err != nil {
			return nodeForbidden(a, "unable to access the object name")
		}
		name = object.GetName()
	}
	if name != node {
		return admission.NewForbidden(a, errors.New(message))
	}
	return nil
}

func (nodeRestriction) csiNodes(_ context.Context, node string, a admission.Attributes) error {
	if err := ownName(node, a, "can only access CSINode with the same name as the requesting node"); err != nil {
		return err
	}
	if a.GetSubresource() == "status" {
		return nodeForbidden(a, "CSIVolumeHealth feature gate is disabled")
	}
	return nil
}

// resourceSlices allows a node to create and delete its slices. The authorizer checks updates, but cannot check each object of
// a deletecollection.
func (nodeRestriction) resourceSlices(_ context.Context, node string, a admission.Attributes) error {
	object, verb := a.GetObject(), "create"
	switch a.GetOperation() {
	case admission.Create:
	case admission.Delete:
		object, verb = a.GetOldObject(), "delete"
	default:
		return nil
	}
	slice, ok := object.(*resourcev1.ResourceSlice)
	if !ok {
		return nodeForbidden(a, "unexpected type %T", object)
	}
	if slice.Spec.NodeName == nil || *slice.Spec.NodeName != node {
		return nodeForbidden(a, "can only %s ResourceSlice with the same NodeName as the requesting node", verb)
	}
	return nil
}

// signingRequests allows requests for kubelet certificates only for the node's own name.
func (nodeRestriction) signingRequests(_ context.Context, node string, a admission.Attributes) error {
	if a.GetOperation() != admission.Create {
		return nil
	}
	csr, ok := a.GetObject().(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return nodeForbidden(a, "unexpected type %T", a.GetObject())
	}
	if !slices.Contains([]string{certificatesv1.KubeletServingSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName}, csr.Spec.SignerName) {
		return nil
	}
	requested, err := parseCertificateRequest(csr.Spec.Request)
	if err != nil {
		return nodeForbidden(a, "unable to parse csr: %w", err)
	}
	if requested.Subject.CommonName != request.NodeUserPrefix+node {
		return nodeForbidden(a, "can only create a node CSR with CN=system:node:%s", node)
	}
	return nil
}
