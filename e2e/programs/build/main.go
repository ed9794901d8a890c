// Command build builds the programs that end-to-end tests run, by name, into a directory: the same that tests build for
// themselves, which then find them built. Without names it builds those that the tests of README.md need. On a terminal it
// says what it does.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/term"

	"portico.dev/e2e/programs"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	to := flag.String("to", programs.Shared, "directory; it is made")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: build [-to DIR] [PROGRAM...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	dir, err := filepath.Abs(*to) // each is built in a module of its own
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	names := flag.Args()
	if len(names) == 0 {
		names = programs.Stories
	}
	var progress io.Writer
	if term.IsTerminal(int(os.Stderr.Fd())) {
		progress = os.Stderr
	}
	return programs.BuildWithProgress(progress, dir, names...)
}
