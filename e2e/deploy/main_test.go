// Package deploy tests what the directory deploy holds: manifests that kubectl applies to a front door, command lines that
// serve, units of systemd that are notified, images, and alerts whose every series a real Prometheus finds.
package deploy

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"portico.dev/e2e/programs"
)

var (
	// binaries is the directory of the programs under test, set once before any test runs.
	binaries string
	// ports are for servers whose ports must be known before.
	ports programs.Ports
)

func TestMain(m *testing.M) {
	os.Exit(programs.Main(m, &binaries, "aggregator", "extserver", "kubectl", "prometheus"))
}

// startProcess starts one of the programs. Whoever starts it finishes it.
func startProcess(name, dir string, env []string, program string, args ...string) (*programs.Process, error) {
	return programs.Start(name, dir, env, io.Discard, filepath.Join(binaries, program), args...)
}
