// Package deploy tests the directory deploy: manifests that kubectl applies to a front door, command lines that serve, units of
// systemd that are notified, and images. With the build tag prometheus, which .ci/release-checks sets, a real Prometheus finds
// every series of the alerts and of the dashboard.
package deploy

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"portico.dev/e2e/programs"
)

// binaries is the directory of the programs under test, set once before any test runs.
var binaries string

func TestMain(m *testing.M) {
	os.Exit(programs.Main(m, &binaries, "aggregator", "extserver", "kubectl", "installer"))
}

// startProcess starts one of the programs. The caller stops it.
func startProcess(name, dir string, env []string, program string, args ...string) (*programs.Process, error) {
	return programs.Start(name, dir, env, io.Discard, filepath.Join(binaries, program), args...)
}
