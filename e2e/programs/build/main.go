// Command build builds the programs that end-to-end tests run, by name, into a directory: the same that tests build for
// themselves.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"portico.dev/e2e/programs"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	to := flag.String("to", "bin", "directory; it is made")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: build [-to DIR] PROGRAM...")
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
	return programs.Build(dir, flag.Args()...)
}
