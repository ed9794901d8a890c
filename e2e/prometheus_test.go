//go:build prometheus

package e2e

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"portico.dev/e2e/programs"
)

// Stories with a real Prometheus, which takes minutes to build: .ci/release-checks runs them.
func TestStoriesWithPrometheus(t *testing.T) {
	if err := programs.Build(binaries, "prometheus"); err != nil {
		t.Fatal(err)
	}
	runStories(t, testscript.Params{Dir: "testdata/prometheus"})
}
