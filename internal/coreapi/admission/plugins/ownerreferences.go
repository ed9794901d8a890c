package plugins

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// ownerReferencesPermission requires the permission to delete an object for a change of its owners, and the permission to
// update the finalizers of each owner that is added with blockOwnerDeletion.
//
// The owners of an object determine when the garbage collector deletes it, and an owner with blockOwnerDeletion stays until the
// object is deleted. Without this plugin the permission to update an object includes both (attack row C4). Like upstream's, it
// is off by default.
type ownerReferencesPermission struct {
	authorizer authorizer.UnconditionalAuthorizer
	mapper     meta.RESTMapper
}

var _ admission.ValidationInterface = (*ownerReferencesPermission)(nil)

// newOwnerReferencesPermission returns the plugin. The mapper must not call backends: a dead backend of an owner must not delay
// the creation of dependents.
func newOwnerReferencesPermission(a authorizer.UnconditionalAuthorizer, mapper meta.RESTMapper) *ownerReferencesPermission {
	return &ownerReferencesPermission{a, mapper}
}

func (p *ownerReferencesPermission) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Update
}

func (p *ownerReferencesPermission) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	// Upstream exempts the status of pods for old kubelets; its strategy keeps the owners unchanged.
	if a.GetResource().GroupResource() == corev1.Resource("pods") && a.GetSubresource() == "status" {
		return nil
	}
	now, before := ownersOf(a.GetObject()), ownersOf(a.GetOldObject())
	if sameOwners(now, before) {
		return nil
	}
	// A creator may choose any owners for the new object.
	if a.GetOperation() != admission.Create {
		if err := p.mayDelete(ctx, a); err != nil {
			return err
		}
	}
	blocking := newlyBlocking(now, before)
	if len(blocking) == 0 || p.mayFinalizeAnything(ctx, a) {
		return nil
	}
	for _, ref := range blocking {
		if err := p.mayBlock(ctx, a, ref); err != nil {
			return err
		}
	}
	return nil
}

func (p *ownerReferencesPermission) mayDelete(ctx context.Context, a admission.Attributes) error {
	resource := a.GetResource()
	decision, reason, err := p.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: "delete", Namespace: a.GetNamespace(), Name: a.GetName(), ResourceRequest: true,
		APIGroup: resource.Group, APIVersion: resource.Version, Resource: resource.Resource, Subresource: a.GetSubresource(),
	})
	if decision != authorizer.DecisionAllow {
		return admission.NewForbidden(a, fmt.Errorf("cannot set an ownerRef on a resource you can't delete: %v, %v", reason, err))
	}
	return nil
}

// mayFinalizeAnything avoids the lookup of owners for users with all permissions.
func (p *ownerReferencesPermission) mayFinalizeAnything(ctx context.Context, a admission.Attributes) bool {
	decision, _, _ := p.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: "update", Name: "*", ResourceRequest: true,
		APIGroup: "*", APIVersion: "*", Resource: "*", Subresource: "finalizers",
	})
	return decision == authorizer.DecisionAllow
}

// mayBlock checks every resource to which the kind of an owner maps.
func (p *ownerReferencesPermission) mayBlock(ctx context.Context, a admission.Attributes, ref metav1.OwnerReference) error {
	mappings, err := p.mappings(ref)
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion %s Kind %s: %v", ref.APIVersion, ref.Kind, err))
	}
	for _, m := range mappings {
		record := authorizer.AttributesRecord{
			User: a.GetUserInfo(), Verb: "update", Name: ref.Name, ResourceRequest: true,
			APIGroup: m.Resource.Group, APIVersion: m.Resource.Version, Resource: m.Resource.Resource, Subresource: "finalizers",
		}
		if m.Scope.Name() == meta.RESTScopeNameNamespace {
			record.Namespace = a.GetNamespace() // a namespaced owner is in the namespace of the object
		}
		decision, reason, err := p.authorizer.Authorize(ctx, record)
		if decision != authorizer.DecisionAllow {
			return admission.NewForbidden(a, fmt.Errorf("cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: %v, %v", reason, err))
		}
	}
	return nil
}

func (p *ownerReferencesPermission) mappings(ref metav1.OwnerReference) ([]*meta.RESTMapping, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, err
	}
	return p.mapper.RESTMappings(schema.GroupKind{Group: gv.Group, Kind: ref.Kind}, gv.Version)
}

// ownersOf returns the owners of an object, or nil for a nil object or one without metadata.
func ownersOf(obj runtime.Object) []metav1.OwnerReference {
	if obj == nil {
		return nil
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil
	}
	return accessor.GetOwnerReferences()
}

func sameOwners(a, b []metav1.OwnerReference) bool {
	return len(a) == len(b) && (len(a) == 0 || apiequality.Semantic.DeepEqual(a, b))
}

// newlyBlocking returns the owners that have blockOwnerDeletion now but did not have it before.
func newlyBlocking(now, before []metav1.OwnerReference) []metav1.OwnerReference {
	blocked := map[types.UID]bool{}
	for _, ref := range before {
		blocked[ref.UID] = isBlocking(ref)
	}
	var fresh []metav1.OwnerReference
	for _, ref := range now {
		if isBlocking(ref) && !blocked[ref.UID] {
			fresh = append(fresh, ref)
		}
	}
	return fresh
}

func isBlocking(ref metav1.OwnerReference) bool {
	return ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
}
