package extension

import "sync"

// Notifier is implemented by providers that know when what List returns has changed. While somebody watches, the host then lists
// at once, and not only at Definition.PollInterval, which remains for what the provider does not notice. Changes makes one.
//
// However many changes there are, one List runs at a time for all watches that share a list, and one covers all changes
// before it.
type Notifier interface {
	// Changed returns a channel that is closed at the next change after this call. It must return at once, and is called
	// concurrently.
	Changed() <-chan struct{}
}

// Changes is a Notifier to embed in a provider, which calls Notify after each change. The zero value is ready. Its methods may be
// called concurrently.
type Changes struct {
	mu   sync.Mutex
	next chan struct{} // nil while nobody waits
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

// Notify tells watches that List returns something else now. It does not wait for them.
func (c *Changes) Notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil {
		close(c.next)
		c.next = nil
	}
}
