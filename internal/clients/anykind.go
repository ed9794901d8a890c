package clients

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// ForResource is the informer of any resource of Kubernetes' own groups, those that Client does not have too: a policy may
// have any of them as its parameter. It is the informer that the group gives, where it gives one.
func (i *Informers) ForResource(resource schema.GroupVersionResource) (informers.GenericInformer, error) {
	kind, ok := kindOf(resource)
	if !ok {
		return nil, fmt.Errorf("%s: no such resource of Kubernetes' own groups", resource)
	}
	object, err := scheme.Scheme.New(kind)
	if err != nil {
		return nil, err
	}
	return anyInformer{resource.GroupResource(), i.informerOf(resource, kind, object)}, nil
}

// anObject is what has metadata, unlike an APIGroup.
var anObject = reflect.TypeFor[metav1.ObjectMetaAccessor]()

// kindOf finds the kind that has this plural and a list of itself, which leaves out options and reviews.
func kindOf(resource schema.GroupVersionResource) (schema.GroupVersionKind, bool) {
	gv := resource.GroupVersion()
	known := scheme.Scheme.KnownTypes(gv)
	for name, of := range known {
		kind := gv.WithKind(name)
		if plural, _ := meta.UnsafeGuessKindToResource(kind); plural == resource && known[name+"List"] != nil && reflect.PointerTo(of).Implements(anObject) {
			return kind, true
		}
	}
	return schema.GroupVersionKind{}, false
}

func (i *Informers) informerOf(resource schema.GroupVersionResource, kind schema.GroupVersionKind, object runtime.Object) cache.SharedIndexInformer {
	return i.InformerFor(object, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		way := client.CoreV1().RESTClient()
		reads := &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				list, err := scheme.Scheme.New(kind.GroupVersion().WithKind(kind.Kind + "List"))
				if err != nil {
					return nil, err
				}
				return list, reading(way, resource, options).Do(ctx).Into(list)
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				options.Watch = true
				return reading(way, resource, options).Watch(ctx)
			},
		}
		return cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(reads, client), object,
			cache.SharedIndexInformerOptions{
				ResyncPeriod: resync, Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
			})
	})
}

// reading is the request of a list or a watch in all namespaces, as the typed clients make it.
func reading(client rest.Interface, resource schema.GroupVersionResource, options metav1.ListOptions) *rest.Request {
	path := []string{"/apis", resource.Group, resource.Version, resource.Resource}
	if resource.Group == "" {
		path = []string{"/api", resource.Version, resource.Resource}
	}
	var timeout time.Duration
	if options.TimeoutSeconds != nil {
		timeout = time.Duration(*options.TimeoutSeconds) * time.Second
	}
	return client.Get().UseProtobufAsDefaultIfPreferred(true).AbsPath(path...).
		VersionedParams(&options, scheme.ParameterCodec).Timeout(timeout)
}

// anyInformer is an informer by the resource that was asked for.
type anyInformer struct {
	resource schema.GroupResource
	informer cache.SharedIndexInformer
}

func (a anyInformer) Informer() cache.SharedIndexInformer { return a.informer }
func (a anyInformer) Lister() cache.GenericLister {
	return cache.NewGenericLister(a.informer.GetIndexer(), a.resource)
}
