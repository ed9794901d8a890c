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

// fakeMetadata is a metadata client over objects in memory, with the faults of backends. client-go's fake supports neither
// deletecollection nor deadlines.
type fakeMetadata struct {
	mu      sync.Mutex
	objects map[schema.GroupVersionResource][]metav1.PartialObjectMetadata
	calls   []string
	// fault replaces the answer of a call; nil, nil lets the call through. Verb is deletecollection, delete or list.
	fault func(ctx context.Context, verb string, gvr schema.GroupVersionResource) error
}

// errLie makes a call answer success without doing anything.
var errLie = fmt.Errorf("done, trust me")

func newFakeMetadata() *fakeMetadata {
	return &fakeMetadata{objects: map[schema.GroupVersionResource][]metav1.PartialObjectMetadata{}}
}

func (s *fakeMetadata) put(gvr schema.GroupVersionResource, namespace, name string, finalizers ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: finalizers}}
	s.objects[gvr] = append(s.objects[gvr], o)
}

func (s *fakeMetadata) count(gvr schema.GroupVersionResource) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.objects[gvr])
}

func (s *fakeMetadata) release(gvr schema.GroupVersionResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, gvr)
}

// called returns how often a verb was used on a resource.
func (s *fakeMetadata) called(verb string, gvr schema.GroupVersionResource) int {
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

func (s *fakeMetadata) Resource(gvr schema.GroupVersionResource) metadata.Getter {
	return &metadataResource{fake: s, gvr: gvr}
}

type metadataResource struct {
	metadata.ResourceInterface
	fake      *fakeMetadata
	gvr       schema.GroupVersionResource
	namespace string
}

func (r *metadataResource) Namespace(ns string) metadata.ResourceInterface {
	return &metadataResource{fake: r.fake, gvr: r.gvr, namespace: ns}
}

func (r *metadataResource) begin(ctx context.Context, verb string) (lie bool, err error) {
	r.fake.mu.Lock()
	r.fake.calls = append(r.fake.calls, verb+" "+r.gvr.String())
	fault := r.fake.fault
	r.fake.mu.Unlock()
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

func (r *metadataResource) DeleteCollection(ctx context.Context, o metav1.DeleteOptions, _ metav1.ListOptions) error {
	if lie, err := r.begin(ctx, "deletecollection"); lie || err != nil {
		return err
	}
	if o.PropagationPolicy == nil || *o.PropagationPolicy != metav1.DeletePropagationBackground {
		return apierrors.NewBadRequest("the contents of a namespace are deleted in the background")
	}
	r.remove(func(metav1.PartialObjectMetadata) bool { return true })
	return nil
}

func (r *metadataResource) Delete(ctx context.Context, name string, _ metav1.DeleteOptions, _ ...string) error {
	if lie, err := r.begin(ctx, "delete"); lie || err != nil {
		return err
	}
	r.remove(func(m metav1.PartialObjectMetadata) bool { return m.Name == name })
	return nil
}

func (r *metadataResource) remove(which func(metav1.PartialObjectMetadata) bool) {
	r.fake.mu.Lock()
	defer r.fake.mu.Unlock()
	r.fake.objects[r.gvr] = slices.DeleteFunc(r.fake.objects[r.gvr], func(m metav1.PartialObjectMetadata) bool {
		return m.Namespace == r.namespace && which(m) && len(m.Finalizers) == 0
	})
}

// List answers in pages of two, so that every test uses paging.
func (r *metadataResource) List(ctx context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	if lie, err := r.begin(ctx, "list"); err != nil || lie {
		return &metav1.PartialObjectMetadataList{}, err
	}
	r.fake.mu.Lock()
	defer r.fake.mu.Unlock()
	var here []metav1.PartialObjectMetadata
	for _, m := range r.fake.objects[r.gvr] {
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
