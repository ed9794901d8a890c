package extension

import (
	"context"
	"errors"
	"sync"

	"k8s.io/apimachinery/pkg/watch"
)

// Event is a change of one object: watch.Added, watch.Modified, or watch.Deleted with at least the name of the object.
type Event[T any] struct {
	Type   watch.EventType
	Object T
}

// Store is a provider that keeps its objects in memory: whoever learns of changes elsewhere, from a stream of events, an informer
// or a poll, writes them into it. Watches see them at once, and reads cost nothing while nothing changes. NewStore makes one;
// its methods may be called concurrently.
//
// Changes of one object that follow each other faster than the host lists become one event, as for any watcher of Kubernetes'
// that lists again.
type Store[T any] struct {
	changes Changes
	keyOf   func(*T) key

	mu      sync.RWMutex // guards objects
	objects map[key]T
}

// NewStore makes an empty store. Of takes it as it is, or a type around it that has more methods.
func NewStore[T any, P Object[T]]() *Store[T] {
	return &Store[T]{
		keyOf:   func(o *T) key { return key{P(o).GetNamespace(), P(o).GetName()} },
		objects: map[key]T{},
	}
}

// Set adds objects, or replaces those of the same namespace and name. The store keeps them; they must not be changed afterwards.
func (s *Store[T]) Set(objects ...T) {
	s.change(func() {
		for _, o := range objects {
			s.objects[s.keyOf(&o)] = o
		}
	})
}

// Delete removes an object, if it is there. namespace is empty for cluster-scoped ones.
func (s *Store[T]) Delete(namespace, name string) {
	s.change(func() { delete(s.objects, key{namespace, name}) })
}

// Replace makes objects all that there is: what a poll has found.
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

// Follow writes events into the store until ctx ends, as a Background does. An error means that events was closed before that.
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

// List returns all objects, in no order.
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

// whole is the store itself, also when it is called of a type around it.
func (s *Store[T]) whole() any { return s }

// tellsAll reports whether nothing of a provider changes without a notice. That holds for a Store itself; a type around one may list
// more than what is in the store.
func tellsAll(provider any) bool {
	s, ok := provider.(interface{ whole() any })
	return ok && s.whole() == provider
}

// Changed makes the store a Notifier.
func (s *Store[T]) Changed() <-chan struct{} { return s.changes.Changed() }
