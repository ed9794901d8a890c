// Package engine selects between two implementations of HTTP: Portico's (http1, http2), and net/http with
// golang.org/x/net/http2. The implementation that serves clients and the one for backends are selected independently.
package engine

import "fmt"

// Name is an implementation of HTTP.
type Name string

// The implementations.
const (
	Portico Name = "portico"
	Library Name = "library"
)

// Names returns all implementations, the default first.
func Names() []Name { return []Name{Portico, Library} }

// Set implements pflag.Value.
func (n *Name) Set(value string) error {
	for _, known := range Names() {
		if value == string(known) {
			*n = known
			return nil
		}
	}
	return fmt.Errorf("%q is no HTTP engine: choose %q or %q", value, Portico, Library)
}

// String implements pflag.Value.
func (n *Name) String() string { return string(*n) }

// Type implements pflag.Value.
func (n *Name) Type() string { return "engine" }
