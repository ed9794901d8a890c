package registry

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Strategy implements the strategies of k8s.io/apiserver's generic registry with the descriptor of a kind.
type Strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	Resource    *Resource
	Environment *Environment
}

func NewStrategy(e *Environment, r *Resource) Strategy {
	return Strategy{ObjectTyper: e.Scheme, NameGenerator: names.SimpleNameGenerator, Resource: r, Environment: e}
}

var (
	_ rest.RESTCreateStrategy  = Strategy{}
	_ rest.RESTUpdateStrategy  = Strategy{}
	_ rest.RESTDeleteStrategy  = Strategy{}
	_ rest.ResetFieldsStrategy = Strategy{}
)

func (s Strategy) NamespaceScoped() bool { return !s.Resource.ClusterScoped }

func (s Strategy) AllowCreateOnUpdate(context.Context) bool { return s.Resource.AllowCreateOnUpdate }

func (s Strategy) AllowUnconditionalUpdate(context.Context) bool {
	return s.Resource.AllowUnconditionalUpdate
}

func (s Strategy) Canonicalize(runtime.Object) {}

// PrepareForCreate clears fields that the author of a create may not set.
func (s Strategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	if s.Resource.Status != nil && !s.Resource.StatusOnCreate {
		s.Resource.Status.reset(obj)
	}
	if s.Resource.Generations {
		SetGeneration(obj, 1)
	}
	s.DropAlphaFields(obj, nil)
	if s.Resource.PrepareCreate != nil {
		s.Resource.PrepareCreate(obj)
	}
	if s.Resource.Stamp != nil {
		s.Resource.Stamp(ctx, obj)
	}
}

// PrepareForUpdate restores the status and increments the generation if the content changed. k8s.io/apiserver has copied the
// generation from old.
func (s Strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	named(obj, old)
	if s.Resource.Status != nil {
		s.Resource.Status.Copy(obj, old)
	}
	if s.Resource.SpecImmutable {
		s.Resource.Spec.Copy(obj, old)
	}
	s.DropAlphaFields(obj, old)
	if s.Resource.PrepareUpdate != nil {
		s.Resource.PrepareUpdate(obj, old)
	}
	if s.Resource.Generations && !s.unchanged(obj, old) {
		SetGeneration(obj, Generation(old)+1)
	}
}

// named copies apiVersion and kind from old to obj. k8s.io/apiserver compares the two objects to detect changes apart from the
// times of field managers, and its patches set the fields only on old: there each version has a Go type, while the versions
// here share one.
func named(obj, old runtime.Object) {
	obj.GetObjectKind().SetGroupVersionKind(old.GetObjectKind().GroupVersionKind())
}

func (s Strategy) unchanged(obj, old runtime.Object) bool {
	if s.Resource.SameContent != nil {
		return s.Resource.SameContent(obj, old)
	}
	return s.Resource.Spec.equal(obj, old)
}

func (s Strategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	var errs field.ErrorList
	if s.Resource.CheckCreate != nil {
		errs = s.Resource.CheckCreate(ctx, s.Environment, obj)
	}
	errs = append(errs, s.Resource.Rules.Create(obj)...)
	return s.authorized(ctx, append(errs, s.Privileged(obj)...), obj, nil)
}

func (s Strategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return s.authorized(ctx, append(s.Resource.Rules.Update(obj, old), s.Privileged(obj)...), obj, old)
}

// authorized adds the errors of Resource.Authorize, which is not called for objects that are invalid anyway.
func (s Strategy) authorized(ctx context.Context, errs field.ErrorList, obj, old runtime.Object) field.ErrorList {
	if len(errs) > 0 || s.Resource.Authorize == nil {
		return errs
	}
	if err := s.Resource.Authorize(ctx, s.Environment, obj, old); err != nil {
		return field.ErrorList{err}
	}
	return nil
}

func (s Strategy) WarningsOnCreate(ctx context.Context, obj runtime.Object) []string {
	var warnings []string
	if s.Resource.Warnings != nil {
		warnings = s.Resource.Warnings(obj)
	}
	if s.Resource.Warn != nil {
		warnings = append(warnings, s.Resource.Warn(ctx, s.Environment, obj)...)
	}
	return warnings
}

func (s Strategy) WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string {
	if s.Resource.WarnOnUpdate != nil && !s.Resource.WarnOnUpdate(obj, old) {
		return nil
	}
	return s.WarningsOnCreate(ctx, obj)
}

// GetResetFields keeps appliers of the main resource from owning the status, which their requests do not change.
func (s Strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	if s.Resource.Status == nil {
		return nil
	}
	if s.Resource.SpecImmutable {
		return s.Resets(fieldpath.MakePathOrDie(s.Resource.Status.field), fieldpath.MakePathOrDie(s.Resource.Spec.field))
	}
	return s.Resets(fieldpath.MakePathOrDie(s.Resource.Status.field))
}

// Resets returns the given fields as reset fields for every version that serves the kind.
func (s Strategy) Resets(paths ...fieldpath.Path) map[fieldpath.APIVersion]*fieldpath.Set {
	kinds, _, err := s.ObjectKinds(s.Resource.Object)
	if err != nil {
		return nil // not expected: newScheme in package coreapi registers every kind
	}
	fields := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, kind := range kinds {
		if kind.Version != runtime.APIVersionInternal {
			fields[fieldpath.APIVersion(kind.GroupVersion().String())] = fieldpath.NewSet(paths...)
		}
	}
	for _, version := range s.Resource.AlsoServedIn {
		fields[fieldpath.APIVersion(version.String())] = fieldpath.NewSet(paths...)
	}
	return fields
}

// StatusStrategy lets the status subresource change the status and nothing else.
type StatusStrategy struct {
	Strategy
}

func (s StatusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	named(obj, old)
	if s.Resource.Spec != nil {
		s.Resource.Spec.Copy(obj, old)
	}
	if s.Resource.PrepareStatus != nil {
		s.Resource.PrepareStatus(obj, old)
	}
	if s.Resource.StatusChangesMetadata {
		return
	}
	to, err := meta.Accessor(obj)
	if err != nil {
		return // k8s.io/apiserver has read the metadata of both objects before
	}
	from, err := meta.Accessor(old)
	if err != nil {
		return
	}
	metav1.ResetObjectMetaForStatus(to, from)
}

func (s StatusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	paths := []fieldpath.Path{fieldpath.MakePathOrDie(s.Resource.Spec.field)}
	for _, kept := range s.Resource.StatusResetFields {
		path := fieldpath.Path{}
		for _, name := range kept {
			path = append(path, fieldpath.PathElement{FieldName: &name})
		}
		paths = append(paths, path)
	}
	if !s.Resource.StatusChangesMetadata {
		for _, name := range []string{"labels", "annotations", "finalizers", "ownerReferences"} {
			paths = append(paths, fieldpath.MakePathOrDie("metadata", name))
		}
	}
	return s.Resets(paths...)
}

func (s StatusStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	var errs field.ErrorList
	if s.Resource.CheckStatus != nil {
		errs = s.Resource.CheckStatus(ctx, s.Environment, obj, old)
	}
	return append(errs, s.Resource.Rules.Status(obj, old)...)
}

// WarningsOnUpdate returns nothing, because warnings are about the spec, which the request does not change.
func (s StatusStrategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

func Generation(obj runtime.Object) int64 {
	if m, err := meta.Accessor(obj); err == nil {
		return m.GetGeneration()
	}
	return 0
}

func SetGeneration(obj runtime.Object, n int64) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetGeneration(n)
	}
}

// orphaning keeps the dependents of a deleted object unless the delete request has a policy. Clients of the first workload
// kinds, which are older than garbage collection, delete pods themselves.
type orphaning struct{ Strategy }

// OrphanDependents is a DeleteStrategy.
func OrphanDependents(s Strategy) rest.RESTDeleteStrategy { return orphaning{s} }

func (orphaning) DefaultGarbageCollectionPolicy(context.Context) rest.GarbageCollectionPolicy {
	return rest.OrphanDependents
}

// NewGeneration is a WarnOnUpdate for kinds that warn only if a write changes the generation.
func NewGeneration(obj, old runtime.Object) bool { return Generation(obj) != Generation(old) }
