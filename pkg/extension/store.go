package extension

import (
	"context"
	"errors"
	"sync"

	"k8s.io/apimachinery/pkg/watch"
)

// Event is a change of one object: watch.Added, watch.Modified, or watch.Deleted. A deleted Object needs only its namespace
// and name.
type Event[T any] struct {
	Type   watch.EventType
	Object T
}

// Store is a provider that keeps its objects in memory. The program writes the changes that it receives from an event stream,
// an informer or a poll into the store. Watches see them at once, and reads cost nothing while the objects do not change.
// Create a Store with NewStore. Its methods may be called concurrently.
//
// If one object changes several times before the host lists, its watches receive one event, as from a Kubernetes client that
// relists.
type Store[T any] struct {
	changes Changes
	keyOf   func(*T) key

	mu      sync.RWMutex // guards objects
	objects map[key]T
}

// NewStore returns an empty Store. Pass it to Of directly, or embed it in a type with more methods.
func NewStore[T any, P Object[T]]() *Store[T] {
	return &Store[T]{
		keyOf:   func(o *T) key { return key{P(o).GetNamespace(), P(o).GetName()} },
		objects: map[key]T{},
	}
}

// Set adds objects, or replaces the ones with the same namespace and name. The store keeps the objects, so the caller must
// not modify them afterwards.
func (s *Store[T]) Set(objects ...T) {
	s.change(func() {
		for _, o := range objects {
			s.objects[s.keyOf(&o)] = o
		}
	})
}

// Delete removes an object if it exists. namespace is empty for cluster-scoped objects.
func (s *Store[T]) Delete(namespace, name string) {
	s.change(func() { delete(s.objects, key{namespace, name}) })
}

// Replace replaces the contents of the store by objects, such as the result of a poll.
func (s *Store[T]) Replace(objects []T) {
	s.change(func() {
		clear(s.objects)
		for _, o := range objects {
			s.objects[s.keyOf(&o)] = o
		}
	})
}

func (s *Store[T]) change(f func()) {
	s.mu.Lock()
	f()
	s.mu.Unlock()
	s.changes.Notify()
}

// Follow applies events to the store until ctx ends; it can run as a Background. It returns an error if events is closed
// before that.
func (s *Store[T]) Follow(ctx context.Context, events <-chan Event[T]) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-events:
			switch {
			case !ok:
				return errors.New("the stream of events has ended")
			case e.Type == watch.Deleted:
				k := s.keyOf(&e.Object)
				s.Delete(k.namespace, k.name)
			case e.Type == watch.Added || e.Type == watch.Modified:
				s.Set(e.Object)
			}
		}
	}
}

// List returns all objects, in no particular order.
func (s *Store[T]) List(context.Context, Query) ([]T, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]T, 0, len(s.objects))
	for _, o := range s.objects {
		all = append(all, o)
	}
	return all, nil
}

// Get returns one object.
func (s *Store[T]) Get(_ context.Context, q Query) (T, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	o, ok := s.objects[key{q.Namespace, q.Name}]
	if !ok {
		return o, ErrNotFound
	}
	return o, nil
}

// whole returns the store itself, even if it is called on a type that embeds it.
func (s *Store[T]) whole() any { return s }

// tellsAll reports whether a provider reports every change. That holds for a Store itself; a type that embeds one may list
// additional objects.
func tellsAll(provider any) bool {
	s, ok := provider.(interface{ whole() any })
	return ok && s.whole() == provider
}

// Changed implements Notifier.
func (s *Store[T]) Changed() <-chan struct{} { return s.changes.Changed() }
