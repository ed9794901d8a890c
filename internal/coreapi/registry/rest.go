package registry

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/listcache"
)

// REST serves one resource through k8s.io/apiserver.
type REST struct {
	*genericregistry.Store
	Resource *Resource
	// Strategy is the strategy of the main resource. The strategies of subresources are built from it.
	Strategy Strategy

	source listcache.Source
}

func (s *REST) ShortNames() []string { return s.Resource.ShortNames }

func (s *REST) Categories() []string { return s.Resource.Categories }

// StorageDirectory returns the directory of the objects below the etcd prefix.
func (s *REST) StorageDirectory() string { return s.Resource.StorageDirectory() }

var (
	_ rest.StandardStorage    = (*REST)(nil)
	_ rest.ShortNamesProvider = (*REST)(nil)
	_ rest.CategoriesProvider = (*REST)(nil)
)

// List implements rest.Lister. If the response is built from a cache of encodings, the list contains only metadata. The cache
// cannot recognize objects that are read from etcd each time, so k8s.io/apiserver encodes them.
func (s *REST) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	list, err := s.Store.List(ctx, options)
	if err == nil && s.Resource.WatchCache && s.isServedAs(ctx, list) {
		listcache.Take(ctx, s.source, list)
	}
	return list, err
}

// isServedAs reports whether the Go type of a list belongs to the version of the request, so that k8s.io/apiserver encodes its
// objects without conversion.
func (s *REST) isServedAs(ctx context.Context, list runtime.Object) bool {
	info, ok := apirequest.RequestInfoFrom(ctx)
	if !ok {
		return false
	}
	kinds, _, err := s.Strategy.ObjectKinds(list)
	return err == nil && slices.ContainsFunc(kinds, func(kind schema.GroupVersionKind) bool {
		return kind.GroupVersion() == schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	})
}

// listSource returns the source of lists from a store.
func listSource(store *genericregistry.Store, r *Resource) listcache.Source {
	source := listcache.Source{Storage: store, Resource: store.DefaultQualifiedResource}
	if r.Columns != nil { // resources without columns use k8s.io/apiserver's default table
		source.Table = func(ctx context.Context, list runtime.Object) (*metav1.Table, error) {
			return store.ConvertToTable(ctx, list, &metav1.TableOptions{})
		}
	}
	return source
}

// Open builds the storage of each resource in groups, with the options for it, and adds it to e.
func (e *Environment) Open(groups []Group, options func(schema.GroupVersion, *Resource) generic.RESTOptions) error {
	e.storages = map[schema.GroupResource]*REST{}
	for i := range groups {
		g := &groups[i]
		for j := range g.Resources {
			r := &g.Resources[j]
			opened, err := e.open(options(g.Version, r), g.Version, r)
			if err != nil {
				return err
			}
			e.storages[schema.GroupResource{Group: g.Version.Group, Resource: r.Name}] = opened
		}
	}
	return nil
}

func (e *Environment) open(options generic.RESTOptions, version schema.GroupVersion, r *Resource) (*REST, error) {
	s := NewStrategy(e, r)
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
	if r.TTL != nil {
		seconds := uint64(r.TTL(e).Seconds())
		store.TTLFunc = func(runtime.Object, uint64, bool) (uint64, error) { return seconds, nil }
	}
	if r.Guard != nil {
		store.BeginCreate = func(ctx context.Context, obj runtime.Object, _ *metav1.CreateOptions) (genericregistry.FinishFunc, error) {
			return Finished, r.Guard(ctx, e, obj, nil)
		}
		store.BeginUpdate = func(ctx context.Context, obj, old runtime.Object, _ *metav1.UpdateOptions) (genericregistry.FinishFunc, error) {
			return Finished, r.Guard(ctx, e, obj, old)
		}
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: options, AttrFunc: r.Fields.Attrs}); err != nil {
		return nil, fmt.Errorf("open %s: %w", r.Name, err)
	}
	return &REST{Store: store, Resource: r, Strategy: s, source: listSource(store, r)}, nil
}

// Serve returns the storages of an opened group by path below its group-version.
func (e *Environment) Serve(g *Group) map[string]rest.Storage {
	served := map[string]rest.Storage{}
	for i := range g.Resources {
		maps.Copy(served, e.serve(g.Version.Group, &g.Resources[i]))
	}
	for _, v := range g.Virtual {
		served[v.Name] = v.Storage(e)
	}
	return served
}

// serve calls Resource.Storages first, because it may change the hooks of the main storage, which subresources share.
func (e *Environment) serve(group string, r *Resource) map[string]rest.Storage {
	main := e.storages[schema.GroupResource{Group: group, Resource: r.Name}]
	own := map[string]rest.Storage{}
	if r.Storages != nil {
		own = r.Storages(e, main)
	}
	served := map[string]rest.Storage{r.Name: main}
	if r.Status != nil {
		served[r.Name+"/status"] = main.Status()
	}
	if r.Scale != nil {
		served[r.Name+"/scale"] = newScaleREST(main)
	}
	maps.Copy(served, own)
	return served
}

// Finished is for BeginCreate and BeginUpdate without anything to undo.
func Finished(context.Context, bool) {}

// Status returns the status subresource.
func (s *REST) Status() *Subresource { return s.Subresource(StatusStrategy{s.Strategy}) }

// Subresource writes a part of a stored object with its own strategy.
type Subresource struct {
	store *genericregistry.Store
}

// Subresource returns a subresource that shares the storage of the main resource. Its writes use strategy.
func (s *REST) Subresource(strategy interface {
	rest.RESTUpdateStrategy
	rest.ResetFieldsStrategy
}) *Subresource {
	store := *s.Store
	store.UpdateStrategy, store.ResetFieldsStrategy = strategy, strategy
	store.BeginCreate, store.BeginUpdate = nil, nil
	return &Subresource{&store}
}

var (
	_ rest.Patcher             = (*Subresource)(nil)
	_ rest.TableConvertor      = (*Subresource)(nil)
	_ rest.ResetFieldsStrategy = (*Subresource)(nil)
)

func (s *Subresource) New() runtime.Object { return s.store.NewFunc() }

// Destroy does nothing: the main resource owns the storage.
func (s *Subresource) Destroy() {}

func (s *Subresource) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, options)
}

// Update never creates an object.
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
