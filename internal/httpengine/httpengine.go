// Package httpengine selects between two implementations of HTTP: Portico's, and net/http with golang.org/x/net/http2. The
// implementation that serves clients and the one for backends are selected independently. See README.md in this directory.
package httpengine

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"

	"portico.dev/internal/httpengine/engine"
)

// Name is an implementation of HTTP.
type Name string

// Library is net/http, with golang.org/x/net/http2.
const Library Name = "library"

// Default is the implementation that is used unless a flag selects another one.
func Default() Name { return engines[0].name }

// Names returns all implementations, the default first.
func Names() (names []Name) {
	for _, e := range engines {
		names = append(names, e.name)
	}
	return names
}

// Set implements pflag.Value.
func (n *Name) Set(value string) error {
	var choices []string
	for _, e := range engines {
		if value == string(e.name) {
			*n = e.name
			return nil
		}
		choices = append(choices, fmt.Sprintf("%q", e.name))
	}
	return fmt.Errorf("%q is no HTTP engine: choose %s", value, strings.Join(choices, " or "))
}

// String implements pflag.Value.
func (n *Name) String() string { return string(*n) }

// Type implements pflag.Value.
func (n *Name) Type() string { return "engine" }

// ScansHTTP1 reports whether Portico's parser checks HTTP/1.1 responses before net/http reads them. Both engines use
// net/http's HTTP/1.1 client.
func (n Name) ScansHTTP1() bool { return n != Library }

func (n Name) engine() engine.Engine {
	for _, e := range engines {
		if e.name == n {
			return e
		}
	}
	return engines[0]
}

// NewServer returns a server of an implementation. An unknown name means the default.
func NewServer(n Name, c engine.ServerConfig) engine.Server { return n.engine().NewServer(c) }

// NewClientConn returns a connection of an implementation (engine.Engine). An unknown name means the default.
func NewClientConn(ctx context.Context, n Name, tc *tls.Conn, config engine.ClientConfig) (engine.ClientConn, error) {
	return n.engine().NewClientConn(ctx, tc, config)
}
