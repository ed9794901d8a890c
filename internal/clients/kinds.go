package clients

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// kind is the informer of one kind: a TypedPodInformer of pods, where T is the PodIndexInformer and L the PodLister. The
// library's own links a hundred methods of T for each kind, and a client of it.
type kind[T, L any] struct {
	informer  cache.SharedIndexInformer
	newLister func(cache.Indexer) L
}

func informerOf[T, L any](i *Informers, gv schema.GroupVersion, resource, name string, object runtime.Object, newLister func(cache.Indexer) L) kind[T, L] {
	return kind[T, L]{i.informerOf(gv.WithResource(resource), gv.WithKind(name), object), newLister}
}

// Informer is shared by all who ask the same factory.
func (k kind[T, L]) Informer() cache.SharedIndexInformer { return k.informer }

// Lister reads what Informer holds.
func (k kind[T, L]) Lister() L { return k.newLister(k.informer.GetIndexer()) }

// TypedInformer is what the library's interface wants and what we do without: nobody who is linked calls it, which is
// tested.
func (k kind[T, L]) TypedInformer() T {
	panic("typed informers are not linked: use Informer and Lister")
}
