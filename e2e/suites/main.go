// Command suites runs integration test suites of other projects, which use controller-runtime's envtest, with the two programs of
// cmd/envtest and with a real kube-apiserver and the same etcd, and compares the result of each spec.
//
//	go run ./e2e/programs/build -to DIR kube-apiserver
//	go run ./e2e/suites -scratch DIR -results FILE -kube-apiserver DIR/kube-apiserver
//	go run ./e2e/suites -from FILE -write docs/envtest.md
//
// The results file contains one line of JSON for each package and server. Lines are added as packages finish: an interrupted run
// resumes where it stopped. The scratch directory needs 20 GB for all suites.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "suites:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var (
		scratch   = flag.String("scratch", "", "directory for copies of the modules, test binaries and outputs; it is kept")
		results   = flag.String("results", "", "file of results, to which a line is added for each package and server")
		gocache   = flag.String("gocache", "", "build cache of the go command; default the usual one")
		apiserver = flag.String("kube-apiserver", "", "a real kube-apiserver; default none, and only Portico is run")
		kubectl   = flag.String("kubectl", "", "a kubectl, which a few specs start; default none, and they fail on both")
		only      = flag.String("run", "", "regular expression of the packages to run, by import path; default all")
		again     = flag.Bool("again", false, "run also what the results have; the last line about a package counts")
		limit     = flag.Duration("limit", 20*time.Minute, "time that a package may take")
		from      = flag.String("from", "", "write tables from this file of results, and run nothing")
		write     = flag.String("write", "", "page to write the tables into, with -from")
	)
	flag.Parse()
	if *from != "" || *write != "" {
		if *from == "" || *write == "" {
			return errors.New("-from FILE and -write PAGE belong together")
		}
		return writePage(*from, *write)
	}
	if *scratch == "" || *results == "" {
		return errors.New("-scratch DIR and -results FILE are needed")
	}
	selected, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	dir, err := filepath.Abs(*scratch)
	if err != nil {
		return err
	}
	store, err := openResults(*results)
	if err != nil {
		return err
	}
	r := &runner{scratch: dir, selected: selected, again: *again, limit: *limit, store: store, goEnv: goEnv(*gocache)}
	if err := r.equip(ctx, *apiserver, *kubectl); err != nil {
		return errors.Join(err, store.close())
	}
	return errors.Join(r.runAll(ctx), store.close())
}

// goEnv returns the environment of the go command in the copies.
func goEnv(cache string) []string {
	env := append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod -buildvcs=false", "GOTOOLCHAIN=local")
	if cache != "" {
		env = append(env, "GOCACHE="+cache)
	}
	return env
}
