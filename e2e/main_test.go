package e2e

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"portico.dev/e2e/programs"
	"portico.dev/internal/run/freeport"
)

var (
	// binaries is the directory of the programs under test, set once before any test runs.
	binaries string
	// ports are for servers whose ports must be fixed in advance or across restarts.
	ports freeport.Ports
)

func TestMain(m *testing.M) {
	os.Exit(programs.Main(m, &binaries, programs.Stories...))
}

// startProcess starts a program of this repository. The caller stops it.
func startProcess(name, dir string, env []string, program string, args ...string) (*programs.Process, error) {
	return startLogging(io.Discard, name, dir, env, program, args...)
}

// startLogging is startProcess with a copy of the complete log.
func startLogging(log io.Writer, name, dir string, env []string, program string, args ...string) (*programs.Process, error) {
	return programs.Start(name, dir, env, log, filepath.Join(binaries, program), args...)
}
