package namespaces

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
)

// shelf is a metadata client over objects in memory, with the faults that backends have. client-go's fake knows neither
// deletecollection nor deadlines.
type shelf struct {
	mu      sync.Mutex
	objects map[schema.GroupVersionResource][]metav1.PartialObjectMetadata
	calls   []string
	// fault decides what a call answers instead of the truth; nil, nil: the truth. Verb is deletecollection, delete or list.
	fault func(ctx context.Context, verb string, gvr schema.GroupVersionResource) error
}

// errLie makes a call answer success without doing anything.
var errLie = fmt.Errorf("done, trust me")

func newShelf() *shelf {
	return &shelf{objects: map[schema.GroupVersionResource][]metav1.PartialObjectMetadata{}}
}

func (s *shelf) put(gvr schema.GroupVersionResource, namespace, name string, finalizers ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: finalizers}}
	s.objects[gvr] = append(s.objects[gvr], o)
}

func (s *shelf) count(gvr schema.GroupVersionResource) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.objects[gvr])
}

func (s *shelf) release(gvr schema.GroupVersionResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, gvr)
}

// called says how often a verb was used on a resource.
func (s *shelf) called(verb string, gvr schema.GroupVersionResource) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.calls {
		if c == verb+" "+gvr.String() {
			n++
		}
	}
	return n
}

func (s *shelf) Resource(gvr schema.GroupVersionResource) metadata.Getter {
	return &shelfResource{shelf: s, gvr: gvr}
}

type shelfResource struct {
	metadata.ResourceInterface
	shelf     *shelf
	gvr       schema.GroupVersionResource
	namespace string
}

func (r *shelfResource) Namespace(ns string) metadata.ResourceInterface {
	return &shelfResource{shelf: r.shelf, gvr: r.gvr, namespace: ns}
}

func (r *shelfResource) begin(ctx context.Context, verb string) (lie bool, err error) {
	r.shelf.mu.Lock()
	r.shelf.calls = append(r.shelf.calls, verb+" "+r.gvr.String())
	fault := r.shelf.fault
	r.shelf.mu.Unlock()
	if fault == nil {
		return false, nil
	}
	if err := fault(ctx, verb, r.gvr); err == errLie {
		return true, nil
	} else if err != nil {
		return false, err
	}
	return false, nil
}

func (r *shelfResource) DeleteCollection(ctx context.Context, o metav1.DeleteOptions, _ metav1.ListOptions) error {
	if lie, err := r.begin(ctx, "deletecollection"); lie || err != nil {
		return err
	}
	if o.PropagationPolicy == nil || *o.PropagationPolicy != metav1.DeletePropagationBackground {
		return apierrors.NewBadRequest("the contents of a namespace are deleted in the background")
	}
	r.remove(func(metav1.PartialObjectMetadata) bool { return true })
	return nil
}

func (r *shelfResource) Delete(ctx context.Context, name string, _ metav1.DeleteOptions, _ ...string) error {
	if lie, err := r.begin(ctx, "delete"); lie || err != nil {
		return err
	}
	r.remove(func(m metav1.PartialObjectMetadata) bool { return m.Name == name })
	return nil
}

func (r *shelfResource) remove(which func(metav1.PartialObjectMetadata) bool) {
	r.shelf.mu.Lock()
	defer r.shelf.mu.Unlock()
	r.shelf.objects[r.gvr] = slices.DeleteFunc(r.shelf.objects[r.gvr], func(m metav1.PartialObjectMetadata) bool {
		return m.Namespace == r.namespace && which(m) && len(m.Finalizers) == 0
	})
}

// List answers in pages of two, so that paging is always in play.
func (r *shelfResource) List(ctx context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	if lie, err := r.begin(ctx, "list"); err != nil || lie {
		return &metav1.PartialObjectMetadataList{}, err
	}
	r.shelf.mu.Lock()
	defer r.shelf.mu.Unlock()
	var here []metav1.PartialObjectMetadata
	for _, m := range r.shelf.objects[r.gvr] {
		if m.Namespace == r.namespace && m.Name > o.Continue {
			here = append(here, m)
		}
	}
	list := &metav1.PartialObjectMetadataList{Items: here}
	if len(here) > 2 {
		list.Items = here[:2]
		list.Continue = here[1].Name
	}
	return list, nil
}
