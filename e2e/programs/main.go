package programs

import (
	"flag"
	"fmt"
	"os"
)

// concurrent is the default number of parallel tests. They mostly wait for programs.
const concurrent = "6"

// Main is the body of TestMain in packages with tests that start programs. It builds the named programs in a
// temporary directory, or uses the directory in the flag -programs, sets binaries to that directory, runs the tests
// and returns the exit code.
func Main(m interface{ Run() int }, binaries *string, names ...string) int {
	prebuilt := flag.String("programs", "", "directory of built programs; default they are built from the tree")
	if err := flag.Set("test.parallel", concurrent); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	flag.Parse()
	if *prebuilt != "" {
		*binaries = *prebuilt
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "portico-programs-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = Build(dir, names...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*binaries = dir
	return m.Run()
}
