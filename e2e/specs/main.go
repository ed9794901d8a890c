// Command specs runs Kubernetes' end-to-end specs, unmodified, on a cluster with a real kube-apiserver and on one with a front
// door, with the same kube-controller-manager, kube-scheduler and kwok, and compares the outcomes of each spec.
//
//	make upstream-specs
//
// This target builds the programs and runs both. The following commands use programs that are already built: the first two run
// one cluster each, the third runs the specs that pass on kube-apiserver again through a front door, and the last writes the page.
//
//	go run ./e2e/specs -programs DIR -server kube-apiserver
//	go run ./e2e/specs -programs DIR -server portico
//	go run ./e2e/specs -programs DIR -server cluster -passed e2e/specs/kube-apiserver.jsonl
//	go run ./e2e/specs -write e2e/specs/README.md
//
// The results files contain one line of JSON for each spec. Lines are added as specs end: an interrupted run resumes where it
// stopped. If a spec has several lines, the last one is used.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "specs:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	r := &runner{}
	var only, page string
	flag.StringVar(&r.programs, "programs", "", "directory of the programs")
	flag.StringVar(&r.server, "server", "", "API server: portico, kube-apiserver, or cluster, which is kube-apiserver through a front door")
	flag.IntVar(&r.nodes, "nodes", 4, "number of Nodes that kwok simulates; 0: neither kwok nor kube-scheduler runs")
	flag.IntVar(&r.processes, "processes", 20, "number of specs that run in parallel")
	flag.DurationVar(&r.limit, "limit", time.Minute, "time limit of a spec")
	flag.DurationVar(&r.last, "for", 0, "end the run after this; specs that have not ended are not recorded; 0: run all")
	flag.StringVar(&r.scratch, "scratch", "", "directory for logs, which is kept; default a temporary directory")
	flag.StringVar(&r.results, "results", "", "file of results, packed at the end as FILE.zst; default e2e/specs/SERVER.jsonl")
	flag.StringVar(&only, "run", "", "regular expression; only specs with a matching name are run")
	flag.StringVar(&r.passed, "passed", "", "file of results of another server; only specs that pass there are run")
	flag.BoolVar(&r.again, "again", false, "also run specs that have results")
	flag.StringVar(&page, "write", "", "write the comparison to this page; no specs are run")
	flag.Parse()
	if page != "" {
		return writePage(page)
	}
	if !slices.Contains([]string{portico, kubeAPIServer, throughFront}, r.server) || r.programs == "" {
		return errors.New("-programs DIR and -server portico, kube-apiserver or cluster are needed")
	}
	if r.results == "" {
		r.results = filepath.Join(directory, r.server+".jsonl")
	}
	for _, path := range []*string{&r.programs, &r.results} {
		var err error
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if err := unpack(r.results); err != nil {
		return err
	}
	return errors.Join(r.run(ctx, only), pack(r.results))
}
