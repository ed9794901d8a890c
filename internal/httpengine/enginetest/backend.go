package enginetest

import (
	"testing"

	"portico.dev/internal/httpengine"
)

// NotOnLibraryBackend skips a test of a guarantee that net/http cannot give for backends. row is the name of the row in
// internal/httpengine/README.md, under "Towards backends", with the reason.
func NotOnLibraryBackend(t testing.TB, row string) {
	t.Helper()
	NotOnLibrary(t, Backend(t), row)
}

// NotOnLibrary is NotOnLibraryBackend for a test that selects its engine itself.
func NotOnLibrary(t testing.TB, n httpengine.Name, row string) {
	t.Helper()
	if n == httpengine.Library {
		t.Skipf("the library cannot promise this: %q in internal/httpengine/README.md", row)
	}
}
