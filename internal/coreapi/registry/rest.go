package registry

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"portico.dev/internal/coreapi/columns"
)

// REST is one resource as the library serves it.
type REST struct {
	*genericregistry.Store
	Resource *Resource
}

func (s *REST) ShortNames() []string { return s.Resource.ShortNames }

func (s *REST) Categories() []string { return s.Resource.Categories }

var (
	_ rest.StandardStorage    = (*REST)(nil)
	_ rest.ShortNamesProvider = (*REST)(nil)
	_ rest.CategoriesProvider = (*REST)(nil)
)

// Open builds the storage of one entry of the table.
func Open(scheme *runtime.Scheme, options generic.RESTOptions, version schema.GroupVersion, r *Resource, g *WriteAuthorizer, n *RelatedObjects, denyPrivileged bool) (*REST, error) {
	s := NewStrategy(scheme, r)
	s.Related, s.guards, s.DenyPrivileged = n, g, denyPrivileged
	store := &genericregistry.Store{
		NewFunc:                   r.Object.DeepCopyObject,
		NewListFunc:               r.List.DeepCopyObject,
		DefaultQualifiedResource:  schema.GroupResource{Group: version.Group, Resource: r.Name},
		SingularQualifiedResource: schema.GroupResource{Group: version.Group, Resource: r.Singular},
		CreateStrategy:            s,
		UpdateStrategy:            s,
		DeleteStrategy:            s,
		ResetFieldsStrategy:       s,
		ReturnDeletedObject:       r.ReturnDeletedObject,
		TableConvertor:            rest.NewDefaultTableConvertor(schema.GroupResource{Group: version.Group, Resource: r.Name}),
	}
	if r.Columns != nil {
		store.TableConvertor = columns.Convertor(r.Columns(), time.Now)
	}
	if r.DeleteStrategy != nil {
		store.DeleteStrategy = r.DeleteStrategy(s)
	}
	if r.TTL > 0 {
		seconds := uint64(r.TTL.Seconds())
		store.TTLFunc = func(runtime.Object, uint64, bool) (uint64, error) { return seconds, nil }
	}
	if r.Guard != nil {
		store.BeginCreate = func(ctx context.Context, obj runtime.Object, _ *metav1.CreateOptions) (genericregistry.FinishFunc, error) {
			return Finished, r.Guard(ctx, g, obj, nil)
		}
		store.BeginUpdate = func(ctx context.Context, obj, old runtime.Object, _ *metav1.UpdateOptions) (genericregistry.FinishFunc, error) {
			return Finished, r.Guard(ctx, g, obj, old)
		}
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: options, AttrFunc: r.Fields.Attrs}); err != nil {
		return nil, fmt.Errorf("open %s: %w", r.Name, err)
	}
	return &REST{store, r}, nil
}

func Finished(context.Context, bool) {}

// Subresource is a second door to a stored object, which changes a part of it by rules of its own.
type Subresource struct {
	store *genericregistry.Store
}

// NewSubresource opens a door to main whose writes follow s. It shares the storage of main.
func NewSubresource(main *genericregistry.Store, s interface {
	rest.RESTUpdateStrategy
	rest.ResetFieldsStrategy
}) *Subresource {
	store := *main
	store.UpdateStrategy, store.ResetFieldsStrategy = s, s
	store.BeginCreate, store.BeginUpdate = nil, nil
	return &Subresource{&store}
}

var (
	_ rest.Patcher             = (*Subresource)(nil)
	_ rest.TableConvertor      = (*Subresource)(nil)
	_ rest.ResetFieldsStrategy = (*Subresource)(nil)
)

func (s *Subresource) New() runtime.Object { return s.store.NewFunc() }

// Destroy leaves the storage to the main resource.
func (s *Subresource) Destroy() {}

func (s *Subresource) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, options)
}

// Update never creates: a status of nothing is a mistake.
func (s *Subresource) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return s.store.Update(ctx, name, info, create, update, false, options)
}

func (s *Subresource) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.store.GetResetFields()
}

func (s *Subresource) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return s.store.ConvertToTable(ctx, obj, options)
}
