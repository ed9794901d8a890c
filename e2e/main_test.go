package e2e

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"portico.dev/e2e/programs"
)

var directory = flag.String("programs", "", "directory of built programs; default they are built from the tree")

var (
	// binaries is the directory of the programs under test, set once before any test runs.
	binaries string
	// ports are for servers whose ports must be known before, or last.
	ports programs.Ports
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	if *directory != "" {
		binaries = *directory
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "portico-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := programs.Build(dir, "aggregator", "extserver", "kubectl", "mappers", "prometheus"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binaries = dir
	return m.Run()
}

// startProcess starts one of our programs. Whoever starts it finishes it.
func startProcess(name, dir string, env []string, program string, args ...string) (*programs.Process, error) {
	return startLogging(io.Discard, name, dir, env, program, args...)
}

// startLogging is startProcess for those who want all of what it logs, and not only the end.
func startLogging(log io.Writer, name, dir string, env []string, program string, args ...string) (*programs.Process, error) {
	return programs.Start(name, dir, env, log, filepath.Join(binaries, program), args...)
}
