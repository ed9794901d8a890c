package proxy

import "io"

// lent is a client's body that is not ours to close.
type lent struct{ io.Reader }

// Close implements io.Closer.
func (lent) Close() error { return nil }

// Buffered is how many bytes a Read finds, and whether nothing comes after them, as far as the body knows.
func (l lent) Buffered() (n int, ended bool) {
	if known, ok := l.Reader.(interface{ Buffered() (int, bool) }); ok {
		return known.Buffered()
	}
	return 0, false
}
