package listcache

import (
	"context"
	"encoding/json"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// fewest is the minimum number of objects for which the cache is worthwhile.
const fewest = 32

// Source is the origin of a list.
type Source struct {
	// Storage identifies the storage of the objects. Two storages that return the same object in different versions are
	// different. Required.
	Storage any
	// Resource must be the resource of the request, or nothing is taken, because a handler may also list other resources.
	Resource schema.GroupResource
	// Table converts a list to a Table. If it is nil, k8s.io/apiserver creates the client's Table.
	Table func(context.Context, runtime.Object) (*metav1.Table, error)
}

type takenKey struct{}

// taken is the list that was removed from the response to one request.
type taken struct {
	request *apirequest.RequestInfo
	table   bool // the client accepts a Table
	source  Source
	list    runtime.Object // nil until a list is taken
	items   func(i int) runtime.Object
	length  int
}

// Take removes the objects from a list if Handler creates the response of ctx's request. The list must have the requested
// version and come directly from the storage, because its objects may belong to a watch cache.
func Take(ctx context.Context, source Source, list runtime.Object) {
	t, ok := ctx.Value(takenKey{}).(*taken)
	if !ok || t.list != nil || t.request.Resource != source.Resource.Resource || t.request.APIGroup != source.Resource.Group || t.table && source.Table == nil {
		return
	}
	if u, ok := list.(*unstructured.UnstructuredList); ok {
		t.takeUnstructured(source, u)
		return
	}
	t.takeTyped(source, list)
}

func (t *taken) takeUnstructured(source Source, list *unstructured.UnstructuredList) {
	version := schema.GroupVersion{Group: t.request.APIGroup, Version: t.request.APIVersion}.String()
	if len(list.Items) < fewest {
		return
	}
	for i := range list.Items {
		if list.Items[i].Object["apiVersion"] != version {
			return // k8s.io/apiserver would convert it
		}
	}
	whole := *list
	t.source, t.list, t.length = source, &whole, len(whole.Items)
	t.items = func(i int) runtime.Object { return &whole.Items[i] }
	list.Items = []unstructured.Unstructured{}
}

func (t *taken) takeTyped(source Source, list runtime.Object) {
	if _, ok := list.(json.Marshaler); ok {
		return
	}
	if _, ok := list.(runtime.NestedObjectEncoder); ok {
		return
	}
	pointer, err := meta.GetItemsPtr(list)
	if err != nil {
		return
	}
	items := reflect.ValueOf(pointer).Elem()
	if items.Kind() != reflect.Slice || items.Type().Elem().Kind() != reflect.Struct || items.Len() < fewest {
		return
	}
	if _, ok := items.Index(0).Addr().Interface().(metav1.ObjectMetaAccessor); !ok {
		return
	}
	whole := reflect.New(reflect.TypeOf(list).Elem())
	whole.Elem().Set(reflect.ValueOf(list).Elem())
	held := reflect.New(items.Type()).Elem()
	held.Set(items)
	t.source, t.list, t.length = source, whole.Interface().(runtime.Object), held.Len()
	t.items = func(i int) runtime.Object { return held.Index(i).Addr().Interface().(runtime.Object) }
	items.Set(reflect.MakeSlice(items.Type(), 0, 0))
}

// identity identifies an object.
type identity struct {
	// address is the address of the object's managed fields, or nil if the object cannot be identified.
	address any
	version string
}

func identify(obj runtime.Object) identity {
	switch o := obj.(type) {
	case metav1.ObjectMetaAccessor:
		if m, ok := o.GetObjectMeta().(*metav1.ObjectMeta); ok && len(m.ManagedFields) > 0 && m.ResourceVersion != "" {
			return identity{&m.ManagedFields[0], m.ResourceVersion}
		}
	case *unstructured.Unstructured:
		m, _ := o.Object["metadata"].(map[string]any)
		fields, _ := m["managedFields"].([]any)
		if version, _ := m["resourceVersion"].(string); len(fields) > 0 && version != "" {
			return identity{&fields[0], version}
		}
	}
	return identity{}
}
