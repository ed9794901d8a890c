package coreapi

import (
	"encoding/json"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/coreapi/kinds/cluster"
	"portico.dev/internal/coreapi/registry"
)

// storedKind is one version of a kind that is stored.
type storedKind struct {
	resource schema.GroupVersionResource
	sample   *unstructured.Unstructured // nil: the list returns the objects of another version
}

// storedKinds returns every version of every stored kind. A kind precedes the kinds that list its objects.
func storedKinds(t *testing.T) (all []storedKind) {
	t.Helper()
	var views []storedKind
	for _, g := range cluster.All() {
		for i := range g.Resources {
			r := &g.Resources[i]
			all = append(all, storedKind{g.Version.WithResource(r.Name), sampleOf(t, g.Version, r)})
			for _, other := range r.AlsoServedIn {
				views = append(views, storedKind{resource: other.WithResource(r.Name)})
			}
		}
	}
	views = append(views, storedKind{resource: schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}})
	return append(all, views...)
}

func sampleOf(t *testing.T, version schema.GroupVersion, r *registry.Resource) *unstructured.Unstructured {
	t.Helper()
	sample := object(t, r.Samples[0])
	sample.SetAPIVersion(version.String())
	sample.SetKind(reflect.TypeOf(r.Object).Elem().Name())
	return sample
}

// kube-apiserver omits kind and apiVersion from the items of typed lists. Objects in responses to GET and in watch events have both.
func TestListItemsOmitKind(t *testing.T) {
	h := crdServerOver(t, start(t, func(c *Config) { c.RuntimeConfig = everything(t) }))
	client := h.typed(t, admin)
	namespace(t, client, "ns")
	ctx := within(t)
	for _, kind := range storedKinds(t) {
		t.Run(kind.resource.GroupVersion().String()+" "+kind.resource.Resource, func(t *testing.T) {
			if kind.sample != nil {
				of := h.dynamic.Resource(kind.resource).Namespace(kind.sample.GetNamespace())
				if _, err := of.Create(ctx, kind.sample, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			for _, query := range []string{"", "resourceVersion=0", "limit=1", "fieldSelector=metadata.name!%3Dnothing"} {
				expectItemsWithoutKind(t, h, kind.resource, query)
			}
			w, err := h.dynamic.Resource(kind.resource).Watch(ctx, initialEvents)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			got, ok := next(t, w).Object.(runtime.Unstructured)
			if !ok || got.GetObjectKind().GroupVersionKind().GroupVersion() != kind.resource.GroupVersion() {
				t.Errorf("watch event with the object %v, want an object of %s", got, kind.resource.GroupVersion())
			}
		})
	}
}

func expectItemsWithoutKind(t *testing.T, h *crdServer, resource schema.GroupVersionResource, query string) {
	t.Helper()
	path := "/apis/" + resource.Group + "/" + resource.Version + "/" + resource.Resource
	if resource.Group == "" {
		path = "/api/" + resource.Version + "/" + resource.Resource
	}
	body, err := h.typed(t, admin).CoreV1().RESTClient().Get().RequestURI(path+"?"+query).
		SetHeader("Accept", "application/json").DoRaw(within(t))
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		metav1.TypeMeta
		Items []metav1.TypeMeta
	}
	if err := json.Unmarshal(body, &list); err != nil {
		t.Fatal(err)
	}
	if list.Kind == "" || list.APIVersion != resource.GroupVersion().String() || len(list.Items) == 0 {
		t.Errorf("GET %s?%s = %.200s, want a list with items", path, query, body)
	}
	for _, item := range list.Items {
		if item != (metav1.TypeMeta{}) {
			t.Errorf("GET %s?%s: an item has kind %q and apiVersion %q, want none", path, query, item.Kind, item.APIVersion)
		}
	}
}
