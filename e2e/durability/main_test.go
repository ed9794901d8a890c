package durability

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"portico.dev/e2e/programs"
	"portico.dev/internal/run/freeport"
)

var (
	// aggregator is the program under test, set once before any test runs.
	aggregator = flag.String("aggregator", "", "path of the program under test; default built from the tree")
	// kills is how often the front door dies.
	kills = flag.Int("kills", 20, "how often the front door is killed")
	// built is the directory of the compiled programs, until the tests end.
	built string
	// ports are the fixed ports of processes that restart.
	ports freeport.Ports
)

func TestMain(m *testing.M) {
	if point := os.Getenv(tracerVariable); point != "" {
		os.Exit(tracerMain(point, os.Args[1:]))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	flag.Parse()
	dir, err := os.MkdirTemp("", "portico-durability-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	built = dir
	if *aggregator == "" {
		if err := programs.Build(dir, "aggregator"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		*aggregator = filepath.Join(dir, "aggregator")
	}
	return m.Run()
}
