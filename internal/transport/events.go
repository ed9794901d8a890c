package transport

import (
	"slices"
	"sync"
)

// Events tells the parts of a program what happens to backends. The zero value is ready to use. Parts subscribe when they
// run, so that none of them needs to know another one.
type Events struct {
	mu          sync.RWMutex
	subscribers []*Subscriber
}

// Subscriber is called on the goroutine that met an event. Its functions must not block; nil ones are not called.
type Subscriber struct {
	// Failed: a connection failed or was lost.
	Failed func(b *Backend)
	// Answered: the backend answered a request, with any status.
	Answered func(b *Backend)
	// DocumentsMayDiffer: the backend may serve other discovery and OpenAPI documents than before.
	DocumentsMayDiffer func(b *Backend)
}

// Subscribe has s called until unsubscribe is called.
func (e *Events) Subscribe(s *Subscriber) (unsubscribe func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.subscribers = append(slices.Clone(e.subscribers), s)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.subscribers = slices.DeleteFunc(slices.Clone(e.subscribers), func(o *Subscriber) bool { return o == s })
	}
}

// Failed is for Options.OnFailure.
func (e *Events) Failed(b *Backend, _ error) {
	e.each(b, func(s *Subscriber) func(*Backend) { return s.Failed })
}

// Answered is for Options.OnSuccess.
func (e *Events) Answered(b *Backend) {
	e.each(b, func(s *Subscriber) func(*Backend) { return s.Answered })
}

// DocumentsMayDiffer tells that the backend may serve other documents than before. A nil backend is ignored.
func (e *Events) DocumentsMayDiffer(b *Backend) {
	e.each(b, func(s *Subscriber) func(*Backend) { return s.DocumentsMayDiffer })
}

func (e *Events) each(b *Backend, event func(*Subscriber) func(*Backend)) {
	e.mu.RLock()
	subscribers := e.subscribers
	e.mu.RUnlock()
	for _, s := range subscribers {
		if f := event(s); f != nil && b != nil {
			f(b)
		}
	}
}
