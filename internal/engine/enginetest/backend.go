// Package enginetest lets tests run with either implementation of HTTP.
package enginetest

import (
	"os"
	"testing"

	"portico.dev/internal/engine"
)

// BackendEngine names the environment variable that says by which engine fixtures reach backends. Only tests read it.
const BackendEngine = "PORTICO_TEST_BACKEND_ENGINE"

// Backend is the engine by which fixtures are to reach backends: Portico unless the environment says otherwise.
func Backend(t testing.TB) engine.Name {
	t.Helper()
	n := engine.Portico
	if name := os.Getenv(BackendEngine); name != "" {
		if err := n.Set(name); err != nil {
			t.Fatalf("%s: %v", BackendEngine, err)
		}
	}
	return n
}

// NotOnLibraryBackend skips a test of what the library cannot promise towards backends. row is the name of the row in
// docs/http-engines.md, under "Towards backends", that says why.
func NotOnLibraryBackend(t testing.TB, row string) {
	t.Helper()
	NotOnLibrary(t, Backend(t), row)
}

// NotOnLibrary is NotOnLibraryBackend for a test that chooses its engine itself.
func NotOnLibrary(t testing.TB, n engine.Name, row string) {
	t.Helper()
	if n == engine.Library {
		t.Skipf("the library cannot promise this: %q in docs/http-engines.md", row)
	}
}
