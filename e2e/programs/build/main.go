// Command build builds the programs of the end-to-end tests, by name, into a directory. The tests build the same
// programs, and reuse existing builds. Without names it builds the programs for the tests in README.md. On a terminal
// it shows its progress.
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
	dir, err := filepath.Abs(*to) // the builds run in the directories of their modules
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
