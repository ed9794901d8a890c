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
	update = flag.Bool("update", false, "write docs/compatibility.md")

	// binaries is the directory of the programs, set once before any test runs.
	binaries string
	book     *compat.Book
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	book = compat.Open("Clients", parties...)
	code := programs.Main(m, &binaries, "aggregator", "extserver", "kubectl", "manager", "operator", "informers", "installer")
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
