package coreapi

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

// strategy is what the library asks about a kind while it creates, updates and deletes: the table's answers.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	of *resource
	// beside is for the warnings of a kind that has any; nil: nobody is to be warned.
	beside *neighbours
	// guards is for kinds whose entry has authorize.
	guards *guards
	// denyPrivileged refuses privileged containers: see privileged.go.
	denyPrivileged bool
}

func newStrategy(typer runtime.ObjectTyper, r *resource) strategy {
	return strategy{ObjectTyper: typer, NameGenerator: names.SimpleNameGenerator, of: r}
}

var (
	_ rest.RESTCreateStrategy  = strategy{}
	_ rest.RESTUpdateStrategy  = strategy{}
	_ rest.RESTDeleteStrategy  = strategy{}
	_ rest.ResetFieldsStrategy = strategy{}
)

func (s strategy) NamespaceScoped() bool                         { return !s.of.clusterScoped }
func (s strategy) AllowCreateOnUpdate(context.Context) bool      { return s.of.createOnUpdate }
func (s strategy) AllowUnconditionalUpdate(context.Context) bool { return s.of.blindUpdate }
func (s strategy) Canonicalize(runtime.Object)                   {}

// PrepareForCreate drops what a creator may not set.
func (s strategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	if s.of.status != nil && !s.of.statusOnCreate {
		s.of.status.reset(obj)
	}
	if s.of.generations {
		setGeneration(obj, 1)
	}
	dropAlphaOfPods(obj, nil)
	if s.of.prepareCreate != nil {
		s.of.prepareCreate(obj)
	}
	if s.of.stamp != nil {
		s.of.stamp(ctx, obj)
	}
}

// PrepareForUpdate keeps the status as it was and counts a new generation when the content changed. The library has
// carried the generation over from old.
func (s strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	named(obj, old)
	if s.of.status != nil {
		s.of.status.copy(obj, old)
	}
	if s.of.specOnce {
		s.of.spec.copy(obj, old)
	}
	dropAlphaOfPods(obj, old)
	if s.of.prepareUpdate != nil {
		s.of.prepareUpdate(obj, old)
	}
	if s.of.generations && !s.unchanged(obj, old) {
		setGeneration(obj, generation(old)+1)
	}
}

// named gives obj the apiVersion and kind of old. The library compares the two to tell whether anything but the date of a
// field manager has changed, and its patches leave them on old alone: its versions are of different Go types, ours of one.
func named(obj, old runtime.Object) {
	obj.GetObjectKind().SetGroupVersionKind(old.GetObjectKind().GroupVersionKind())
}

func (s strategy) unchanged(obj, old runtime.Object) bool {
	if s.of.sameContent != nil {
		return s.of.sameContent(obj, old)
	}
	return s.of.spec.equal(obj, old)
}

func (s strategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return s.authorized(ctx, append(s.of.rules.Create(obj), s.privileged(obj)...), obj, nil)
}

func (s strategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return s.authorized(ctx, append(s.of.rules.Update(obj, old), s.privileged(obj)...), obj, old)
}

// authorized adds to what is wrong with obj what its author may not write. Nobody is asked about objects that are refused
// anyway.
func (s strategy) authorized(ctx context.Context, errs field.ErrorList, obj, old runtime.Object) field.ErrorList {
	if len(errs) > 0 || s.of.authorize == nil {
		return errs
	}
	if err := s.of.authorize(ctx, s.guards, obj, old); err != nil {
		return field.ErrorList{err}
	}
	return nil
}

func (s strategy) WarningsOnCreate(ctx context.Context, obj runtime.Object) []string {
	var warnings []string
	if s.of.warnings != nil {
		warnings = s.of.warnings(obj)
	}
	if s.of.warn != nil && s.beside != nil {
		warnings = append(warnings, s.of.warn(ctx, s.beside, obj)...)
	}
	return warnings
}

func (s strategy) WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string {
	if s.of.warnsAgain != nil && !s.of.warnsAgain(obj, old) {
		return nil
	}
	return s.WarningsOnCreate(ctx, obj)
}

// GetResetFields keeps an applier of the main resource from owning a status that its apply does not write.
func (s strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	if s.of.status == nil {
		return nil
	}
	if s.of.specOnce {
		return s.resets(fieldpath.MakePathOrDie(s.of.status.field), fieldpath.MakePathOrDie(s.of.spec.field))
	}
	return s.resets(fieldpath.MakePathOrDie(s.of.status.field))
}

// resets are fields reset by writes through any version that shows the kind.
func (s strategy) resets(paths ...fieldpath.Path) map[fieldpath.APIVersion]*fieldpath.Set {
	kinds, _, err := s.ObjectKinds(s.of.object)
	if err != nil {
		return nil // every kind of the table is registered: newScheme
	}
	fields := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, kind := range kinds {
		if kind.Version != runtime.APIVersionInternal {
			fields[fieldpath.APIVersion(kind.GroupVersion().String())] = fieldpath.NewSet(paths...)
		}
	}
	for _, version := range s.of.alsoAt {
		fields[fieldpath.APIVersion(version.String())] = fieldpath.NewSet(paths...)
	}
	return fields
}

// statusStrategy lets the status subresource change the status and nothing else.
type statusStrategy struct {
	strategy
}

func (s statusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	named(obj, old)
	if s.of.spec != nil {
		s.of.spec.copy(obj, old)
	}
	if s.of.prepareStatus != nil {
		s.of.prepareStatus(obj, old)
	}
	if s.of.statusMeta {
		return
	}
	to, err := meta.Accessor(obj)
	if err != nil {
		return // the library has read the metadata of both before it came here
	}
	from, err := meta.Accessor(old)
	if err != nil {
		return
	}
	metav1.ResetObjectMetaForStatus(to, from)
}

func (s statusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	paths := []fieldpath.Path{fieldpath.MakePathOrDie(s.of.spec.field)}
	for _, kept := range s.of.statusKeeps {
		path := fieldpath.Path{}
		for _, name := range kept {
			path = append(path, fieldpath.PathElement{FieldName: &name})
		}
		paths = append(paths, path)
	}
	if !s.of.statusMeta {
		for _, name := range []string{"labels", "annotations", "finalizers", "ownerReferences"} {
			paths = append(paths, fieldpath.MakePathOrDie("metadata", name))
		}
	}
	return s.resets(paths...)
}

func (s statusStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return s.of.rules.Status(obj, old)
}

// WarningsOnUpdate is silent: what would be warned about was not in the request.
func (s statusStrategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

func generation(obj runtime.Object) int64 {
	if m, err := meta.Accessor(obj); err == nil {
		return m.GetGeneration()
	}
	return 0
}

func setGeneration(obj runtime.Object, n int64) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetGeneration(n)
	}
}
