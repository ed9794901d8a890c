// Package enginetest lets tests run with either implementation of HTTP. Only tests import it.
//
// PORTICO_TEST_HTTP_ENGINE and PORTICO_TEST_BACKEND_ENGINE select the implementations for every front door that a test
// starts, in process or as a program: `make library-engines` sets both to library. A test of a guarantee that net/http
// cannot give calls Needs, which skips it.
package enginetest

import (
	"os"
	"slices"
	"testing"

	"portico.dev/internal/httpengine"
)

// Environment variables.
const (
	HTTPVariable    = "PORTICO_TEST_HTTP_ENGINE"
	BackendVariable = "PORTICO_TEST_BACKEND_ENGINE"
)

// HTTP returns the implementation that serves clients.
func HTTP(t testing.TB) httpengine.Name { return chosen(t, HTTPVariable) }

// Backend returns the implementation for backends.
func Backend(t testing.TB) httpengine.Name { return chosen(t, BackendVariable) }

func chosen(t testing.TB, variable string) httpengine.Name {
	t.Helper()
	name := httpengine.Default()
	if value := os.Getenv(variable); value != "" {
		if err := name.Set(value); err != nil {
			t.Fatalf("%s: %v", variable, err)
		}
	}
	return name
}

// Flags returns the flags with which a program uses the same implementations. Without the variables it returns none.
func Flags() []string {
	var flags []string
	for _, f := range [][2]string{{HTTPVariable, "--http-engine="}, {BackendVariable, "--backend-engine="}} {
		if value := os.Getenv(f[0]); value != "" {
			flags = append(flags, f[1]+value)
		}
	}
	return flags
}

// Needs skips a test that relies on a guarantee that net/http cannot give, if net/http serves clients. A promise is the
// first column of a row of the table in internal/httpengine/README.md.
func Needs(t testing.TB, p Promise) {
	t.Helper()
	if !slices.Contains(Promises(), p) {
		t.Fatalf("%q is not among the promises", p)
	}
	if HTTP(t) == httpengine.Library {
		t.Skipf("net/http cannot promise this: %s (internal/httpengine/README.md)", p)
	}
}
