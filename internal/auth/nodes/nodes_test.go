package nodes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/tools/cache"
)

// filled is an authorizer with the objects of two nodes in one namespace.
func filled() *Authorizer {
	a, one, two := New(), "n1", "n2"
	azure := "kube-azure"
	for _, obj := range []any{
		everything("ns", "p1", one), everything("ns", "p2", two),
		boundVolume("pv-p1", "ns", "pvc-p1", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			NodePublishSecretRef: secretRef("csi", "publish"), NodeStageSecretRef: secretRef("csi", "stage"), NodeExpandSecretRef: secretRef("csi", "expand"),
			ControllerPublishSecretRef: secretRef("csi", "controller-publish"), ControllerExpandSecretRef: secretRef("csi", "controller-expand"),
		}}),
		boundVolume("pv-ephemeral", "ns", "p1-ephemeral", corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{SecretName: "azure", SecretNamespace: &azure}}),
		boundVolume("pv-azure", "ns", "pvc-p1", corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{SecretName: "azure-claimed"}}),
		boundVolume("pv-ceph", "ns", "pvc-p1", corev1.PersistentVolumeSource{CephFS: &corev1.CephFSPersistentVolumeSource{SecretRef: secretRef("", "ceph")}}),
		boundVolume("pv-cinder", "ns", "pvc-p1", corev1.PersistentVolumeSource{Cinder: &corev1.CinderPersistentVolumeSource{SecretRef: secretRef("storage", "cinder")}}),
		boundVolume("pv-flex", "ns", "pvc-p1", corev1.PersistentVolumeSource{FlexVolume: &corev1.FlexPersistentVolumeSource{SecretRef: secretRef("storage", "flex")}}),
		boundVolume("pv-rbd", "ns", "pvc-p1", corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{SecretRef: secretRef("storage", "rbd")}}),
		boundVolume("pv-scaleio", "ns", "pvc-p1", corev1.PersistentVolumeSource{ScaleIO: &corev1.ScaleIOPersistentVolumeSource{SecretRef: secretRef("storage", "scaleio")}}),
		boundVolume("pv-iscsi", "ns", "pvc-p1", corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{SecretRef: secretRef("storage", "iscsi")}}),
		boundVolume("pv-storageos", "ns", "pvc-p1", corev1.PersistentVolumeSource{StorageOS: &corev1.StorageOSPersistentVolumeSource{SecretRef: &corev1.ObjectReference{Namespace: "storage", Name: "storageos"}}}),
		boundVolume("pv-p2", "ns", "pvc-p2", corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{SecretRef: secretRef("storage", "rbd-p2")}}),
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-unbound"}},
		attachment("va-1", one), attachment("va-2", two),
		slice("slice-1", &one), slice("slice-2", &two), slice("slice-all", nil),
		certificateRequest("ns", "pcr-1", one), certificateRequest("ns", "pcr-2", two),
	} {
		a.graph.set(obj)
	}
	return a
}

// The rows are cases of kube-apiserver's own test of its Node authorizer, with its reasons.
func TestNodePermissionsMatchKubeAPIServer(t *testing.T) {
	a, n1 := filled(), nodeUser("n1")
	const (
		unrelated = "no relationship found between node 'n1' and this object"
		single    = "can only get individual resources of this type"
	)
	for _, c := range []struct {
		verb, resource, namespace, name, selector string // the resource with its subresource
		want                                      string // "": allowed; "-": not allowed, without a reason; or the reason
	}{
		{"get", "secrets", "ns", "secret-volume-p1", "", ""},
		{"list", "secrets", "ns", "secret-volume-p1", "", ""},
		{"watch", "configmaps", "ns", "configmap-volume-p1", "", ""},
		{"get", "secrets", "ns", "secret-volume-p2", "", unrelated},
		{"get", "secrets", "other", "secret-volume-p1", "", unrelated},
		{"list", "secrets", "ns", "", "", "No Object name found"},
		{"list", "secrets", "", "secret-volume-p1", "", "can only read namespaced object of this type"},
		{"update", "secrets", "ns", "secret-volume-p1", "", "can only read resources of this type"},
		{"create", "configmaps", "ns", "", "", "can only read resources of this type"},
		{"get", "secrets/status", "ns", "secret-volume-p1", "", "cannot read subresource"},
		// Secrets of volumes.
		{"get", "secrets", "csi", "publish", "", ""},
		{"get", "secrets", "csi", "stage", "", ""},
		{"get", "secrets", "csi", "expand", "", ""},
		{"get", "secrets", "csi", "controller-publish", "", unrelated},
		{"get", "secrets", "csi", "controller-expand", "", unrelated},
		{"get", "secrets", "kube-azure", "azure", "", ""},
		{"get", "secrets", "ns", "azure", "", unrelated},
		{"get", "secrets", "ns", "azure-claimed", "", ""},
		{"get", "secrets", "ns", "ceph", "", ""},
		{"get", "secrets", "storage", "cinder", "", ""},
		{"get", "secrets", "storage", "flex", "", ""},
		{"get", "secrets", "storage", "rbd", "", ""},
		{"get", "secrets", "storage", "scaleio", "", ""},
		{"get", "secrets", "storage", "iscsi", "", ""},
		{"get", "secrets", "storage", "storageos", "", ""},
		{"get", "secrets", "storage", "rbd-p2", "", unrelated},
		{"get", "persistentvolumes", "", "pv-p1", "", ""},
		{"get", "persistentvolumes", "", "pv-ephemeral", "", ""},
		{"get", "persistentvolumes", "", "pv-p2", "", unrelated},
		{"get", "persistentvolumes", "", "pv-unbound", "", unrelated},
		{"list", "persistentvolumes", "", "", "", single},
		{"get", "persistentvolumeclaims", "ns", "pvc-p1", "", ""},
		{"get", "persistentvolumeclaims", "ns", "p1-ephemeral", "", ""},
		{"get", "persistentvolumeclaims", "ns", "pvc-p2", "", unrelated},
		{"update", "persistentvolumeclaims", "ns", "pvc-p1", "", single},
		{"update", "persistentvolumeclaims/status", "ns", "pvc-p1", "", ""},
		{"patch", "persistentvolumeclaims/status", "ns", "pvc-p1", "", ""},
		{"patch", "persistentvolumeclaims/status", "ns", "pvc-p2", "", unrelated},
		{"get", "persistentvolumeclaims/status", "ns", "pvc-p1", "", "can only get/update/patch this type"},
		{"get", "resourceclaims", "ns", "claim-p1", "", ""},
		{"get", "resourceclaims", "ns", "claim-p2", "", unrelated},
		{"get", "resourceclaims", "ns", "template", "", unrelated},
		{"get", "resourceclaims/status", "ns", "claim-p1", "", "cannot get subresource"},
		{"get", "volumeattachments", "", "va-1", "", ""},
		{"get", "volumeattachments", "", "va-2", "", unrelated},
		// Service accounts and their tokens.
		{"get", "serviceaccounts", "ns", "account-p1", "", ""},
		{"get", "serviceaccounts", "ns", "account-p2", "", unrelated},
		{"list", "serviceaccounts", "ns", "account-p1", "", "can only create tokens for individual service accounts"},
		{"create", "serviceaccounts/token", "ns", "account-p1", "", ""},
		{"create", "serviceaccounts/token", "ns", "account-p2", "", unrelated},
		{"create", "serviceaccounts", "ns", "account-p1", "", "can only create token subresource of serviceaccount"},
		{"create", "serviceaccounts/token", "ns", "", "", "can only create tokens for individual service accounts"},
		{"update", "serviceaccounts/token", "ns", "account-p1", "", "can only create tokens for individual service accounts"},
		// Objects with the node's name.
		{"get", "leases", "kube-node-lease", "n1", "", ""},
		{"create", "leases", "kube-node-lease", "", "", ""},
		{"delete", "leases", "kube-node-lease", "n1", "", ""},
		{"patch", "leases", "kube-node-lease", "n2", "", "can only access node lease with the same name as the requesting node"},
		{"update", "leases", "foo", "n1", "", `can only access leases in the "kube-node-lease" system namespace`},
		{"list", "leases", "kube-node-lease", "", "", "can only get, create, update, patch, or delete a node lease"},
		{"create", "csinodes", "", "", "", ""},
		{"update", "csinodes", "", "n1", "", ""},
		{"update", "csinodes", "", "n2", "", "can only access CSINode with the same name as the requesting node"},
		{"watch", "csinodes", "", "", "", "can only get, create, update, patch, or delete a CSINode"},
		{"get", "csinodes/csiDrivers", "", "n1", "", "cannot authorize CSINode subresources"},
		{"update", "csinodes/status", "", "n1", "", "CSINode status access requires CSIVolumeHealth feature"},
		{"get", "nodes", "", "n1", "", ""},
		{"watch", "nodes", "", "n1", "", ""},
		{"get", "nodes", "", "n2", "", "node 'n1' cannot read 'n2', only its own Node object"},
		{"list", "nodes", "", "", "", "node 'n1' cannot read all nodes, only its own Node object"},
		{"create", "nodes", "", "", "", ""},
		{"patch", "nodes/status", "", "n1", "", ""},
		{"delete", "nodes", "", "n1", "", "-"},
		{"get", "nodes/status", "", "n1", "", "-"},
		{"get", "nodes/proxy", "", "n1", "", "-"},
		// Pods.
		{"get", "pods", "ns", "p1", "", ""},
		{"get", "pods", "ns", "p2", "", unrelated},
		{"get", "pods/log", "ns", "p1", "", "-"},
		{"list", "pods", "", "", "spec.nodeName=n1", ""},
		{"watch", "pods", "", "", "spec.nodeName=n1,status.phase=Running", ""},
		{"list", "pods", "", "", "spec.nodeName=n2", "can only list/watch pods with spec.nodeName field selector"},
		{"list", "pods", "", "", "spec.nodeName!=n2", "can only list/watch pods with spec.nodeName field selector"},
		{"list", "pods", "ns", "", "", "can only list/watch pods with spec.nodeName field selector"},
		{"watch", "pods", "ns", "p1", "metadata.name=p1", ""},
		{"watch", "pods", "ns", "p2", "metadata.name=p2", unrelated},
		{"create", "pods", "ns", "", "", ""},
		{"delete", "pods", "ns", "p1", "", ""},
		{"deletecollection", "pods", "ns", "", "", "-"},
		{"update", "pods", "ns", "p1", "", "-"},
		{"patch", "pods/status", "ns", "p1", "", ""},
		{"create", "pods/eviction", "ns", "p1", "", ""},
		{"create", "pods/binding", "ns", "p1", "", "-"},
		{"patch", "pods/ephemeralcontainers", "ns", "p1", "", "-"},
		// Slices and certificate requests.
		{"get", "resourceslices", "", "slice-1", "", ""},
		{"update", "resourceslices", "", "slice-1", "", ""},
		{"delete", "resourceslices", "", "slice-2", "", unrelated},
		{"patch", "resourceslices", "", "slice-all", "", unrelated},
		{"create", "resourceslices", "", "", "", ""},
		{"list", "resourceslices", "", "", "spec.nodeName=n1", ""},
		{"deletecollection", "resourceslices", "", "", "spec.nodeName=n1", ""},
		{"deletecollection", "resourceslices", "", "", "spec.nodeName=n2", "can only list/watch/deletecollection resourceslices with nodeName field selector"},
		{"watch", "resourceslices", "", "", "", "can only list/watch/deletecollection resourceslices with nodeName field selector"},
		{"get", "resourceslices/status", "", "slice-1", "", "cannot authorize ResourceSlice subresources"},
		{"proxy", "resourceslices", "", "slice-1", "", "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection"},
		{"create", "podcertificaterequests", "ns", "", "", ""},
		{"get", "podcertificaterequests", "ns", "pcr-1", "", ""},
		{"get", "podcertificaterequests", "ns", "pcr-2", "", unrelated},
		{"watch", "podcertificaterequests", "", "", "spec.nodeName=n1", ""},
		{"list", "podcertificaterequests", "ns", "", "spec.nodeName=n2", "can only list/watch podcertificaterequests with nodeName field selector"},
		{"delete", "podcertificaterequests", "ns", "pcr-1", "", "nodes may not delete podcertificaterequests"},
		{"update", "podcertificaterequests/status", "ns", "pcr-1", "", "nodes may not access the status subresource of PodCertificateRequests"},
		// Rules that are the same for all nodes.
		{"list", "services", "", "", "", ""},
		{"create", "certificatesigningrequests", "", "", "", ""},
		{"update", "certificatesigningrequests/approval", "", "csr", "", "-"},
		{"watch", "runtimeclasses", "", "", "", ""},
		{"create", "tokenreviews", "", "", "", ""},
		{"get", "endpoints", "ns", "e", "", ""},
		{"list", "endpoints", "ns", "", "", "-"},
		{"list", "deployments", "ns", "", "", "-"},
	} {
		resource, subresource, _ := strings.Cut(c.resource, "/")
		decision, reason, err := a.Authorize(t.Context(), question(n1, c.verb, resource, subresource, c.namespace, c.name, c.selector))
		wanted, wantedReason := authorizer.DecisionNoOpinion, strings.TrimPrefix(c.want, "-")
		if c.want == "" {
			wanted = authorizer.DecisionAllow
		}
		if decision != wanted || reason != wantedReason || err != nil {
			t.Errorf("%s %s %s/%s %s = %v, %q, %v, want %v, %q", c.verb, c.resource, c.namespace, c.name, c.selector, decision, reason, err, wanted, wantedReason)
		}
	}
}

// Every reference of a pod to an object allows the pod's node, and no other node, to read the object.
func TestNodesMayReadObjectsReferencedByTheirPods(t *testing.T) {
	a := filled()
	may := func(node, resource, name string) bool {
		decision, _, _ := a.Authorize(t.Context(), question(nodeUser(node), "get", resource, "", "ns", name, ""))
		return decision == authorizer.DecisionAllow
	}
	for resource, names := range referenced("p1") {
		for _, name := range names {
			if !may("n1", resource, name) {
				t.Errorf("get of %s %s by its node = not allowed, want allowed", resource, name)
			}
			if may("n2", resource, name) {
				t.Errorf("get of %s %s by another node = allowed, want not allowed", resource, name)
			}
		}
	}
	a.graph.delete(everything("ns", "p1", "n1"))
	for resource, names := range referenced("p1") {
		for _, name := range names {
			if may("n1", resource, name) {
				t.Errorf("get of %s %s after its pod was deleted = allowed, want not allowed", resource, name)
			}
		}
	}
	if may("n1", "pods", "p1") {
		t.Error("get of the deleted pod = allowed, want not allowed")
	}
}

// A node creates its mirror pods, so they grant it no rights.
func TestC24MirrorPodGrantsItsNodeNoRights(t *testing.T) {
	a, pod := New(), everything("ns", "p1", "n1")
	pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	a.graph.set(pod)
	for resource, names := range referenced("p1") {
		for _, name := range names {
			if decision, _, _ := a.Authorize(t.Context(), question(nodeUser("n1"), "get", resource, "", "ns", name, "")); decision == authorizer.DecisionAllow {
				t.Errorf("get of %s %s of a mirror pod = %v, want not allowed", resource, name, decision)
			}
		}
	}
	for _, verb := range []string{"get", "create"} {
		subresource := map[string]string{"create": "token"}[verb]
		if decision, _, _ := a.Authorize(t.Context(), question(nodeUser("n1"), verb, "serviceaccounts", subresource, "ns", "account-p1", "")); decision == authorizer.DecisionAllow {
			t.Errorf("%s of serviceaccounts/%s of a mirror pod = %v, want not allowed", verb, subresource, decision)
		}
	}
	if decision, _, _ := a.Authorize(t.Context(), question(nodeUser("n1"), "get", "pods", "", "ns", "p1", "")); decision != authorizer.DecisionAllow {
		t.Errorf("get of the mirror pod by its node = %v, want allowed", decision)
	}
}

func TestOnlyNodeIdentitiesAreAuthorized(t *testing.T) {
	a := filled()
	for name, c := range map[string]struct {
		who    user.Info
		reason string
	}{
		"without the group":       {&user.DefaultInfo{Name: "system:node:n1", Groups: []string{"system:authenticated"}}, ""},
		"another name":            {&user.DefaultInfo{Name: "n1", Groups: []string{"system:nodes"}}, ""},
		"a name in another case":  {&user.DefaultInfo{Name: "System:node:n1", Groups: []string{"system:nodes"}}, ""},
		"a node without its name": {&user.DefaultInfo{Name: "system:node:", Groups: []string{"system:nodes"}}, `unknown node for user "system:node:"`},
		"nobody":                  {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			decision, reason, err := a.Authorize(t.Context(), question(c.who, "get", "pods", "", "ns", "p1", ""))
			if decision != authorizer.DecisionNoOpinion || reason != c.reason || err != nil {
				t.Errorf("Authorize() = %v, %q, %v, want %v, %q", decision, reason, err, authorizer.DecisionNoOpinion, c.reason)
			}
		})
	}
	_, _, incomplete, err := a.RulesFor(t.Context(), nodeUser("n1"), "ns")
	if !incomplete || err == nil {
		t.Errorf("RulesFor a node = incomplete %v, %v, want incomplete with an error", incomplete, err)
	}
	if _, _, incomplete, err = a.RulesFor(t.Context(), &user.DefaultInfo{Name: "alice"}, "ns"); incomplete || err != nil {
		t.Errorf("RulesFor an ordinary user = incomplete %v, %v, want complete without an error", incomplete, err)
	}
}

// A pod gets its node, claims or ephemeral containers later, and is replaced by a pod of the same name on another node.
func TestPodChangesUpdateNodePermissions(t *testing.T) {
	a := New()
	may := func(node, resource, name string) bool {
		decision, _, _ := a.Authorize(t.Context(), question(nodeUser(node), "get", resource, "", "ns", name, ""))
		return decision == authorizer.DecisionAllow
	}
	pod := everything("ns", "p", "")
	a.graph.set(pod)
	if may("n1", "pods", "p") || may("", "pods", "p") || len(a.graph.pods) > 0 {
		t.Errorf("%d pods with a node in the graph after a pod without one was added, want 0 and no access", len(a.graph.pods))
	}
	pod = everything("ns", "p", "n1")
	pod.Status = corev1.PodStatus{}
	pod.Spec.EphemeralContainers = nil
	a.graph.set(pod)
	if may("n1", "resourceclaims", "made-p") || may("n1", "secrets", "ephemeral-secret-env-p") || !may("n1", "secrets", "main-secret-env-p") {
		t.Error("access of the node before the claims exist: want only the secrets of the containers")
	}
	a.graph.set(everything("ns", "p", "n1"))
	if !may("n1", "resourceclaims", "made-p") || !may("n1", "secrets", "ephemeral-secret-env-p") {
		t.Error("access of the node to the claim and the ephemeral container's secret = not allowed, want allowed")
	}
	a.graph.set(everything("ns", "p", "n2"))
	if may("n1", "pods", "p") || may("n1", "secrets", "main-secret-env-p") || !may("n2", "secrets", "main-secret-env-p") {
		t.Error("access after the pod moved: want it allowed for n2 and not for n1")
	}
}

// After any changes the graph equals a graph that was filled with the final objects, without leftovers.
func TestGraphEqualsFreshGraphAfterChanges(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	changed, final := newGraph(), newGraph()
	kept := map[int]*corev1.Pod{}
	volumesKept := map[int]*corev1.PersistentVolume{}
	for range 2000 {
		i := random.IntN(40)
		if random.IntN(4) == 0 {
			pv := boundVolume(fmt.Sprint("pv", i), "ns", fmt.Sprint("pvc-p", random.IntN(40)),
				corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{SecretRef: secretRef("ns", fmt.Sprint("s", random.IntN(5)))}})
			changed.set(pv)
			volumesKept[i] = pv
			if random.IntN(3) == 0 {
				changed.delete(pv)
				delete(volumesKept, i)
			}
			continue
		}
		pod := everything("ns", fmt.Sprint("p", i), fmt.Sprint("n", random.IntN(4)))
		pod.Spec.ServiceAccountName = "shared"
		pod.Spec.ImagePullSecrets[0].Name = "shared"
		changed.set(pod)
		kept[i] = pod
		if random.IntN(3) == 0 {
			changed.delete(pod)
			delete(kept, i)
		}
	}
	for _, pod := range kept {
		final.set(pod)
	}
	for _, pv := range volumesKept {
		final.set(pv)
	}
	if got, want := fmt.Sprint(changed.pods, changed.users, changed.volumes, changed.secretVolumes), fmt.Sprint(final.pods, final.users, final.volumes, final.secretVolumes); got != want {
		t.Errorf("graph after the changes = %.2000s, want %.2000s", got, want)
	}
	for _, pod := range kept {
		changed.delete(pod)
	}
	for _, pv := range volumesKept {
		changed.delete(pv)
	}
	if n := len(changed.pods) + len(changed.users) + len(changed.volumes) + len(changed.secretVolumes) + len(changed.owners); n > 0 {
		t.Errorf("%d entries in the graph after all objects were deleted, want 0", n)
	}
}

func TestRunAppliesInformerEvents(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	changes := watch.NewFake()
	pod := everything("ns", "p1", "n1")
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.Pod{*pod}}, nil
		},
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil {
				return nil, context.Canceled // the test serves a plain list
			}
			return changes, nil
		},
	}, &corev1.Pod{}, 0, nil)
	a := New()
	done := make(chan error, 2)
	go func() { informer.RunWithContext(ctx); done <- nil }()
	go func() { done <- a.Run(ctx, informer) }()
	select {
	case <-a.Ready():
	case <-time.After(time.Minute):
		t.Fatal("the authorizer was not ready within a minute, want it ready")
	}
	at := object{pods, "ns", "p1"}
	if !a.graph.belongs(at, "n1") {
		t.Error("belongs() of the listed pod = false, want true")
	}
	changes.Delete(pod)
	for deadline := time.After(time.Minute); a.graph.belongs(at, "n1"); {
		select {
		case <-deadline:
			t.Fatal("belongs() of the deleted pod is true after a minute, want false")
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
