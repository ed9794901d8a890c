package overload

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"portico.dev/e2e/programs"
)

var (
	directory = flag.String("programs", "", "directory of built programs; default they are built from the tree")
	// binaries is where the programs are, set once before any test runs.
	binaries string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	if binaries = *directory; binaries != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "portico-overload-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := programs.Build(dir, "aggregator"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binaries = dir
	return m.Run()
}
