package plugins

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// rights contains the author's rights in the form "verb group/resource/subresource namespace/name".
type ownerRights []string

func (r ownerRights) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	asked := a.GetVerb() + " " + a.GetAPIGroup() + "/" + a.GetResource() + "/" + a.GetSubresource() + " " + a.GetNamespace() + "/" + a.GetName()
	for _, right := range r {
		if right == asked {
			return authorizer.DecisionAllow, "", nil
		}
	}
	return authorizer.DecisionNoOpinion, "no right to " + asked, nil
}

func (r ownerRights) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(r.Authorize(ctx, a))
}

var (
	pods         = corev1.SchemeGroupVersion.WithResource("pods")
	thing        = schema.GroupVersion{Group: "dead.example.com", Version: "v1"}
	yes          = true
	free         = metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "c", UID: "1"}
	held         = metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "c", UID: "1", BlockOwnerDeletion: &yes}
	node         = metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n", UID: "2", BlockOwnerDeletion: &yes}
	dead         = metav1.OwnerReference{APIVersion: "dead.example.com/v1", Kind: "Thing", Name: "t", UID: "3", BlockOwnerDeletion: &yes}
	missingOwner = metav1.OwnerReference{APIVersion: "nowhere.example.com/v1", Kind: "Ghost", Name: "g", UID: "4", BlockOwnerDeletion: &yes}
)

func ownerMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	m.Add(thing.WithKind("Thing"), meta.RESTScopeNamespace) // from the last discovery of a backend that is down
	return m
}

func podOwnedBy(refs ...metav1.OwnerReference) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", OwnerReferences: refs}}
}

func TestC4ChangingOwnersNeedsTheRightToDelete(t *testing.T) {
	const mayDelete = "delete /pods/ ns/p"
	for name, c := range map[string]struct {
		rights      ownerRights
		old, now    *corev1.Pod
		subresource string
		refused     string // empty: admitted
	}{
		"created without owners":                            {now: podOwnedBy()},
		"created with an owner":                             {now: podOwnedBy(free)},
		"an owner is added, without delete":                 {old: podOwnedBy(), now: podOwnedBy(free), refused: "cannot set an ownerRef on a resource you can't delete: no right to delete /pods/ ns/p"},
		"an owner is taken away, without delete":            {old: podOwnedBy(free), now: podOwnedBy(), refused: "can't delete"},
		"an owner is exchanged, without delete":             {old: podOwnedBy(free), now: podOwnedBy(missingOwner), refused: "can't delete"},
		"by way of a subresource, without delete":           {old: podOwnedBy(), now: podOwnedBy(free), subresource: "ephemeralcontainers", refused: "can't delete"},
		"the status of a pod, whose owners are kept anyway": {old: podOwnedBy(), now: podOwnedBy(free), subresource: "status"},
		"an owner is added, with delete":                    {rights: ownerRights{mayDelete}, old: podOwnedBy(), now: podOwnedBy(free)},
		"something else is changed":                         {old: podOwnedBy(held), now: podOwnedBy(held)},
		"created with an owner that is to wait": {
			now: podOwnedBy(held), refused: "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: no right to update /configmaps/finalizers ns/c",
		},
		"an owner starts to wait":                     {rights: ownerRights{mayDelete}, old: podOwnedBy(free), now: podOwnedBy(held), refused: "can't set finalizers on"},
		"an owner stops waiting":                      {rights: ownerRights{mayDelete}, old: podOwnedBy(held), now: podOwnedBy(free)},
		"with the right to its finalizers":            {rights: ownerRights{"update /configmaps/finalizers ns/c"}, now: podOwnedBy(held)},
		"a cluster's owner, right in a namespace":     {rights: ownerRights{"update /nodes/finalizers ns/n"}, now: podOwnedBy(node), refused: "can't set finalizers on"},
		"a cluster's owner, right in the cluster":     {rights: ownerRights{"update /nodes/finalizers /n"}, now: podOwnedBy(node)},
		"an owner whose backend is down":              {rights: ownerRights{"update dead.example.com/things/finalizers ns/t"}, now: podOwnedBy(dead)},
		"an owner of a kind that nobody knows":        {now: podOwnedBy(missingOwner), refused: "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion nowhere.example.com/v1 Kind Ghost: no matches for kind"},
		"the same by who may finalize everything":     {rights: ownerRights{"update */*/finalizers /*"}, now: podOwnedBy(missingOwner)},
		"a second owner beside one that waits before": {rights: ownerRights{mayDelete}, old: podOwnedBy(held), now: podOwnedBy(held, node), refused: "/nodes/finalizers"},
	} {
		t.Run(name, func(t *testing.T) {
			operation, old := admission.Create, runtime.Object(nil)
			if c.old != nil {
				operation, old = admission.Update, c.old
			}
			a := admission.NewAttributesRecord(c.now, old, corev1.SchemeGroupVersion.WithKind("Pod"), "ns", "p", pods, c.subresource,
				operation, nil, false, &user.DefaultInfo{Name: "jane"})
			err := newOwnerReferencesPermission(c.rights, ownerMapper()).Validate(t.Context(), a, nil)
			switch {
			case c.refused == "" && err != nil:
				t.Errorf("Validate failed: %v, want no error", err)
			case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
				t.Errorf("Validate error = %v, want an error that contains %q", err, c.refused)
			}
		})
	}
}
