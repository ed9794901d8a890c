package coreapi

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"portico.dev/internal/coreapi/columns"
)

// stored is one resource as the library serves it.
type stored struct {
	*registry.Store
	of *resource
}

func (s *stored) ShortNames() []string { return s.of.shortNames }
func (s *stored) Categories() []string { return s.of.categories }

var (
	_ rest.StandardStorage    = (*stored)(nil)
	_ rest.ShortNamesProvider = (*stored)(nil)
	_ rest.CategoriesProvider = (*stored)(nil)
)

// open builds the storage of one entry of the table.
func open(scheme *runtime.Scheme, options generic.RESTOptions, version schema.GroupVersion, r *resource, g *guards, n *neighbours, denyPrivileged bool) (*stored, error) {
	s := newStrategy(scheme, r)
	s.beside, s.guards, s.denyPrivileged = n, g, denyPrivileged
	store := &registry.Store{
		NewFunc:                   r.object.DeepCopyObject,
		NewListFunc:               r.list.DeepCopyObject,
		DefaultQualifiedResource:  schema.GroupResource{Group: version.Group, Resource: r.name},
		SingularQualifiedResource: schema.GroupResource{Group: version.Group, Resource: r.singular},
		CreateStrategy:            s,
		UpdateStrategy:            s,
		DeleteStrategy:            s,
		ResetFieldsStrategy:       s,
		ReturnDeletedObject:       r.answersDeleted,
		TableConvertor:            rest.NewDefaultTableConvertor(schema.GroupResource{Group: version.Group, Resource: r.name}),
	}
	if r.columns != nil {
		store.TableConvertor = columns.Convertor(r.columns(), time.Now)
	}
	if r.deletion != nil {
		store.DeleteStrategy = r.deletion(s)
	}
	if r.lifetime > 0 {
		seconds := uint64(r.lifetime.Seconds())
		store.TTLFunc = func(runtime.Object, uint64, bool) (uint64, error) { return seconds, nil }
	}
	if r.guard != nil {
		store.BeginCreate = func(ctx context.Context, obj runtime.Object, _ *metav1.CreateOptions) (registry.FinishFunc, error) {
			return finished, r.guard(ctx, g, obj, nil)
		}
		store.BeginUpdate = func(ctx context.Context, obj, old runtime.Object, _ *metav1.UpdateOptions) (registry.FinishFunc, error) {
			return finished, r.guard(ctx, g, obj, old)
		}
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: options, AttrFunc: r.fields.Attrs}); err != nil {
		return nil, fmt.Errorf("open %s: %w", r.name, err)
	}
	return &stored{store, r}, nil
}

func finished(context.Context, bool) {}

// subresource is a second door to a stored object, which changes a part of it by rules of its own.
type subresource struct {
	store *registry.Store
}

// newSubresource opens a door to main whose writes follow s. It shares the storage of main.
func newSubresource(main *registry.Store, s interface {
	rest.RESTUpdateStrategy
	rest.ResetFieldsStrategy
}) *subresource {
	store := *main
	store.UpdateStrategy, store.ResetFieldsStrategy = s, s
	store.BeginCreate, store.BeginUpdate = nil, nil
	return &subresource{&store}
}

var (
	_ rest.Patcher             = (*subresource)(nil)
	_ rest.TableConvertor      = (*subresource)(nil)
	_ rest.ResetFieldsStrategy = (*subresource)(nil)
)

func (s *subresource) New() runtime.Object { return s.store.NewFunc() }

// Destroy leaves the storage to the main resource.
func (s *subresource) Destroy() {}

func (s *subresource) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, options)
}

// Update never creates: a status of nothing is a mistake.
func (s *subresource) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return s.store.Update(ctx, name, info, create, update, false, options)
}

func (s *subresource) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.store.GetResetFields()
}

func (s *subresource) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return s.store.ConvertToTable(ctx, obj, options)
}
