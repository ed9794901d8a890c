// Package spread has a context for functions that many goroutines register for a short time.
package spread

import (
	"context"
	"math/rand/v2"
	"runtime"
)

// Context is a context for functions that are registered for a short time (context.AfterFunc). It consists of several contexts that end
// together, so that goroutines that register functions rarely wait for each other.
type Context []context.Context

// New returns a Context, and a function that ends it.
func New() (Context, context.CancelFunc) {
	c := make(Context, 4*runtime.NumCPU())
	cancels := make([]context.CancelFunc, len(c))
	for i := range c {
		c[i], cancels[i] = context.WithCancel(context.Background())
	}
	return c, func() {
		for _, cancel := range cancels {
			cancel()
		}
	}
}

// AfterFunc is context.AfterFunc.
func (c Context) AfterFunc(f func()) (stop func() bool) {
	return context.AfterFunc(c[rand.IntN(len(c))], f)
}

// Err returns the error of a context that has ended. When a registered function runs, Err is not nil.
func (c Context) Err() error { return c[0].Err() }

// Done returns a channel that is closed at the end.
func (c Context) Done() <-chan struct{} { return c[0].Done() }
