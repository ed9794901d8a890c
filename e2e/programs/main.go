package programs

import (
	"flag"
	"fmt"
	"os"
)

// concurrent is how many parallel tests run at once, by default. They wait for programs most of the time.
const concurrent = "6"

// Main is the body of TestMain in packages whose tests start programs. It builds the named ones into a temporary directory, or
// takes them from the one that the flag -programs names, sets binaries to it, runs the tests and returns the exit code.
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
