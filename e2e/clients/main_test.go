package clients

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"portico.dev/e2e/compat"
	"portico.dev/e2e/programs"
)

var (
	update   = flag.Bool("update", false, "write docs/compatibility.md")
	prebuilt = flag.String("programs", "", "directory of the programs; default built from the tree")

	// binaries is the directory of the programs, set once before any test runs.
	binaries string
	book     *compat.Book
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	binaries = *prebuilt
	if binaries == "" {
		dir, err := os.MkdirTemp("", "portico-clients-programs-")
		if err != nil {
			return failed(err)
		}
		defer os.RemoveAll(dir)
		if err := programs.Build(dir, "aggregator", "extserver", "kubectl", "manager", "operator", "informers", "installer"); err != nil {
			return failed(err)
		}
		binaries = dir
	}
	book = compat.Open("Clients", parties...)
	code := m.Run()
	if code == 0 {
		if err := book.Close(*update); err != nil {
			return failed(err)
		}
	}
	return code
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}
