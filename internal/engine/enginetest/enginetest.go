// Package enginetest lets tests run with either implementation of HTTP. Only tests import it.
//
// PORTICO_TEST_HTTP_ENGINE and PORTICO_TEST_BACKEND_ENGINE choose the implementations for every front door that a test starts,
// in process or as a program: `make library-engines` sets both to library. A test of what the library cannot do says so with
// Needs, and is skipped then.
package enginetest

import (
	"os"
	"slices"
	"testing"

	"portico.dev/internal/engine"
)

// The variables.
const (
	HTTPVariable    = "PORTICO_TEST_HTTP_ENGINE"
	BackendVariable = "PORTICO_TEST_BACKEND_ENGINE"
)

// HTTP is the implementation that serves clients.
func HTTP(t testing.TB) engine.Name { return chosen(t, HTTPVariable) }

// Backend is the implementation that reaches backends.
func Backend(t testing.TB) engine.Name { return chosen(t, BackendVariable) }

func chosen(t testing.TB, variable string) engine.Name {
	t.Helper()
	name := engine.Portico
	if value := os.Getenv(variable); value != "" {
		if err := name.Set(value); err != nil {
			t.Fatalf("%s: %v", variable, err)
		}
	}
	return name
}

// Flags are what a program is started with so that it does the same. Without the variables there are none.
func Flags() []string {
	var flags []string
	for _, f := range [][2]string{{HTTPVariable, "--http-engine="}, {BackendVariable, "--backend-engine="}} {
		if value := os.Getenv(f[0]); value != "" {
			flags = append(flags, f[1]+value)
		}
	}
	return flags
}

// Needs skips a test that relies on what the library cannot do, when it is the library that serves clients. A promise is the
// first column of a row of the table in docs/http-engines.md.
func Needs(t testing.TB, p Promise) {
	t.Helper()
	if !slices.Contains(Promises(), p) {
		t.Fatalf("%q is not among the promises", p)
	}
	if HTTP(t) == engine.Library {
		t.Skipf("net/http cannot promise this: %s (docs/http-engines.md)", p)
	}
}
