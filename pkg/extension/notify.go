package extension

import "sync"

// Notifier is implemented by providers that detect when the result of List has changed. While there are watches, the host
// lists after each notification, in addition to polling at Definition.PollInterval, which covers changes that the provider
// does not detect. Changes is an implementation.
//
// All watches that share a list also share its List calls. At most one runs at a time, and it covers all changes before it.
type Notifier interface {
	// Changed returns a channel that is closed at the next change after this call. It must not block. It is called
	// concurrently.
	Changed() <-chan struct{}
}

// Changes is a Notifier to embed in a provider, which calls Notify after each change. The zero value is ready to use. Its
// methods may be called concurrently.
type Changes struct {
	mu   sync.Mutex
	next chan struct{} // nil until requested
}

// Changed returns a channel that is closed at the next call of Notify.
func (c *Changes) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = make(chan struct{})
	}
	return c.next
}

// Notify reports that the result of List has changed. It does not wait for the watches.
func (c *Changes) Notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil {
		close(c.next)
		c.next = nil
	}
}
