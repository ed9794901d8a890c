package overload

import (
	"os"
	"testing"

	"portico.dev/e2e/programs"
)

// binaries is the directory of the program under test, set once before any test runs.
var binaries string

func TestMain(m *testing.M) { os.Exit(programs.Main(m, &binaries, "aggregator")) }
