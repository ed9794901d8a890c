package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"portico.dev/e2e/bench/backends"
	"portico.dev/e2e/bench/clusters"
	"portico.dev/e2e/bench/compare"
	"portico.dev/e2e/bench/gateway"
	"portico.dev/e2e/bench/growth"
	"portico.dev/e2e/bench/incumbent"
	"portico.dev/e2e/bench/load"
	"portico.dev/e2e/bench/local"
	"portico.dev/e2e/bench/locks"
	"portico.dev/e2e/bench/memory"
	"portico.dev/e2e/bench/nodes"
	"portico.dev/e2e/bench/objects"
	"portico.dev/e2e/bench/proxied"
	"portico.dev/e2e/bench/scale"
	"portico.dev/e2e/bench/shared"
	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
	"portico.dev/e2e/packed"
)

// limit bounds the duration of a run.
const limit = 20 * time.Minute

// report contains the results of a benchmark.
type report interface {
	Markdown() ([]byte, error)
}

// benchmark is a benchmark that can be selected by name. run reports its progress with say.
type benchmark struct {
	name string
	run  func(ctx context.Context, program string, quick bool, say func(string, ...any)) (report, error)
	// explicit is true if the benchmark runs only when it is named
	explicit bool
}

var benchmarks = []benchmark{
	{name: "proxied", run: func(ctx context.Context, program string, quick bool, say func(string, ...any)) (report, error) {
		settings := proxied.Full()
		if quick {
			settings = proxied.Quick()
		}
		return proxied.Run(ctx, program, settings, say)
	}},
	{name: "scale", run: func(ctx context.Context, program string, quick bool, say func(string, ...any)) (report, error) {
		settings := scale.Full()
		if quick {
			settings = scale.Quick()
		}
		return scale.Run(ctx, program, settings, say)
	}},
	{name: "local", run: func(ctx context.Context, program string, quick bool, say func(string, ...any)) (report, error) {
		settings := local.Full()
		if quick {
			settings = local.Quick()
		}
		return local.Run(ctx, program, settings, say)
	}},
	{name: "shared", run: func(ctx context.Context, program string, quick bool, say func(string, ...any)) (report, error) {
		settings := shared.Full()
		if quick {
			settings = shared.Quick()
		}
		return shared.Run(ctx, program, settings, say)
	}},
	{name: "objects", explicit: true, run: func(ctx context.Context, program string, quick bool, say func(string, ...any)) (report, error) {
		settings := objects.Full()
		if quick {
			settings = objects.Quick()
		}
		return objects.Run(ctx, program, settings, say)
	}},
	{name: "clusters", explicit: true, run: func(ctx context.Context, program string, quick bool, say func(string, ...any)) (report, error) {
		settings := clusters.Full()
		if quick {
			settings = clusters.Quick()
		}
		return clusters.Run(ctx, program, settings, say)
	}},
	{name: "growth", explicit: true, run: func(ctx context.Context, program string, quick bool, say func(string, ...any)) (report, error) {
		settings := growth.Full()
		if quick {
			settings = growth.Quick()
		}
		return growth.Run(ctx, program, settings, say)
	}},
	{name: "locks", explicit: true, run: func(ctx context.Context, program string, quick bool, say func(string, ...any)) (report, error) {
		settings := locks.Full()
		if quick {
			settings = locks.Quick()
		}
		return locks.Run(ctx, program, settings, say)
	}},
	manyBackends(environment.Kubernetes{}),
	underLoad(environment.Kubernetes{}),
}

// manyBackends also measures kube-apiserver if its programs are given.
func manyBackends(theirs environment.Kubernetes) benchmark {
	return benchmark{name: "backends", explicit: true, run: func(ctx context.Context, program string, quick bool, say func(string, ...any)) (report, error) {
		settings := backends.Full()
		if quick {
			settings = backends.Quick()
		}
		return backends.Run(ctx, program, theirs, settings, say)
	}}
}

// underLoad measures memory, also of kube-apiserver if its programs are given.
func underLoad(theirs environment.Kubernetes) benchmark {
	return benchmark{name: "memory", explicit: true, run: func(ctx context.Context, program string, quick bool, say func(string, ...any)) (report, error) {
		settings := memory.Full()
		if quick {
			settings = memory.Quick()
		}
		return memory.Run(ctx, program, theirs, settings, say)
	}}
}

// manyNodes returns the benchmark with count Nodes. 0 selects the default.
func manyNodes(theirs environment.Kubernetes, count int) benchmark {
	return benchmark{name: "nodes", explicit: true, run: func(ctx context.Context, program string, quick bool, say func(string, ...any)) (report, error) {
		settings := nodes.Full(count)
		if quick {
			settings = nodes.Quick()
		}
		return nodes.Run(ctx, program, theirs, settings, say)
	}}
}

// kubernetesBenchmarks returns the benchmarks that are available if the programs of Kubernetes are given.
func kubernetesBenchmarks(theirs environment.Kubernetes, nodes int) []benchmark {
	return []benchmark{
		{name: "incumbent", run: func(ctx context.Context, program string, quick bool, say func(string, ...any)) (report, error) {
			settings := incumbent.Full()
			if quick {
				settings = incumbent.Quick()
			}
			return incumbent.Run(ctx, program, theirs, settings, say)
		}},
		{name: "gateway", run: func(ctx context.Context, program string, quick bool, say func(string, ...any)) (report, error) {
			settings := gateway.Full()
			if quick {
				settings = gateway.Quick()
			}
			return gateway.Run(ctx, program, theirs, settings, say)
		}},
		manyBackends(theirs),
		underLoad(theirs),
		manyNodes(theirs, nodes),
	}
}

// atScale measures the given parts of the page. Without parts, it measures all.
func atScale(parts ...string) benchmark {
	return benchmark{name: "load", explicit: true, run: func(ctx context.Context, program string, quick bool, say func(string, ...any)) (report, error) {
		settings := load.Full(parts...)
		if quick {
			settings = load.Quick(parts...)
		}
		return load.Run(ctx, program, settings, say)
	}}
}

// builds returns the benchmark that compares two builds. It runs only if the other build is given.
func builds(before string) benchmark {
	return benchmark{name: "builds", run: func(ctx context.Context, program string, quick bool, say func(string, ...any)) (report, error) {
		settings := proxied.Full()
		if quick {
			settings = proxied.Quick()
		}
		return proxied.CompareBuilds(ctx, program, before, settings, say)
	}}
}

func main() {
	played, err := environment.Play(map[string]func() error{local.Role: local.Serve})
	if !played {
		err = run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	out := flag.String("out", "", "directory for the pages; default e2e/bench/results, with -quick a temporary one")
	quick := flag.Bool("quick", false, "short intervals and few clients, only to check that everything works")
	program := flag.String("aggregator", "", "measure this program; default one built from the tree")
	before := flag.String("before", "", "another build of the aggregator, with which \"builds\" compares")
	var theirs environment.Kubernetes
	flag.StringVar(&theirs.APIServer, "kube-apiserver", "", "compare the aggregator with this program, or measure it behind this program; disables the other benchmarks")
	flag.StringVar(&theirs.ControllerManager, "kube-controller-manager", "", "of the same version; required with -kube-apiserver")
	flag.StringVar(&theirs.Scheduler, "kube-scheduler", "", "of the same version, for nodes")
	flag.StringVar(&theirs.Kwok, "kwok", "", "simulates Nodes, for nodes")
	count := flag.Int("nodes", 0, "number of Nodes of \"nodes\", with ten Pods each; default 1000")
	part := flag.String("part", "", "comma-separated parts of \"load\"; default all of "+strings.Join(load.Parts, ", "))
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: bench [-quick] [-out DIR] [-aggregator FILE] [proxied] [scale] [local] [shared] [objects] [clusters] [growth] [locks] [backends] [memory] [load]\n"+
			"       bench [-quick] [-out DIR] [-aggregator FILE] -part PART[,PART] load\n"+
			"       bench [-quick] [-out DIR] [-aggregator FILE] -before FILE builds\n"+
			"       bench [-quick] [-out DIR] [-aggregator FILE] -kube-apiserver FILE -kube-controller-manager FILE [incumbent] [gateway] [backends] [memory]\n"+
			"       bench [-quick] [-out DIR] [-aggregator FILE] -kube-apiserver FILE -kube-controller-manager FILE -kube-scheduler FILE -kwok FILE [-nodes N] nodes\n"+
			"       bench compare DIR: compares the pages in DIR with the record, and fails if a figure of the front door is worse by more than its noise")
		flag.PrintDefaults()
	}
	flag.Parse()
	for _, file := range []*string{program, before, &theirs.APIServer, &theirs.ControllerManager, &theirs.Scheduler, &theirs.Kwok} {
		var err error
		if *file, err = absolute(*file); err != nil { // the programs run in other directories
			return err
		}
	}
	if flag.Arg(0) == "compare" {
		return compareWithRecord(flag.Args()[1:])
	}
	chosen, err := choose(flag.Args(), *before, theirs, *count, strings.FieldsFunc(*part, func(r rune) bool { return r == ',' }))
	if err != nil {
		return err
	}
	dir, err := place(*out, *quick)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the run took longer than %s: the machine is too busy for numbers", limit))
	defer cancel()
	progress := measure.NewProgress()
	defer progress.End()
	for _, b := range chosen {
		r, err := b.run(ctx, *program, *quick, func(format string, args ...any) { progress.Say(b.name+": "+format, args...) })
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return fmt.Errorf("%s: %w", b.name, err)
		}
		if err := write(dir, b.name, r); err != nil {
			return err
		}
	}
	progress.End()
	fmt.Println("written to", dir)
	return nil
}

// record is the directory of the published pages.
const record = "e2e/bench/results"

// compareWithRecord returns an error if a figure of the pages in a directory is worse than in the published pages.
func compareWithRecord(args []string) error {
	if len(args) != 1 {
		return errors.New("compare needs the directory of the pages that are compared with the record")
	}
	found, err := compare.Directories(record, args[0])
	if err != nil {
		return err
	}
	for _, name := range found.OtherMachine {
		fmt.Printf("%s: the record was made on another machine; only ratios are compared\n", name)
	}
	for _, f := range found.Worse {
		fmt.Println(f)
	}
	if len(found.Worse) > 0 {
		return fmt.Errorf("%d of %d figures are worse than the record by more than their noise", len(found.Worse), found.Figures)
	}
	fmt.Printf("%d figures, none is worse than the record by more than its noise\n", found.Figures)
	return nil
}

func choose(names []string, before string, theirs environment.Kubernetes, nodes int, parts []string) ([]benchmark, error) {
	if len(parts) > 0 && !slices.Equal(names, []string{"load"}) {
		return nil, errors.New("-part is of the benchmark \"load\"")
	}
	if i := slices.IndexFunc(parts, func(part string) bool { return !slices.Contains(load.Parts, part) }); i >= 0 {
		return nil, fmt.Errorf("no part %q; there are %s", parts[i], strings.Join(load.Parts, ", "))
	}
	both := slices.Equal(names, []string{"builds"})
	switch {
	case (before != "") != both:
		return nil, errors.New("-before and the benchmark \"builds\" need each other, and no other benchmark")
	case both && theirs != environment.Kubernetes{}:
		return nil, errors.New("-kube-apiserver is measured by itself; leave builds for another run")
	case both:
		return []benchmark{builds(before)}, nil
	case theirs != environment.Kubernetes{} && (theirs.APIServer == "" || theirs.ControllerManager == ""):
		return nil, errors.New("-kube-apiserver and -kube-controller-manager need each other")
	}
	known := append(slices.Clone(benchmarks), atScale(parts...))
	if theirs != (environment.Kubernetes{}) {
		known = kubernetesBenchmarks(theirs, nodes)
	}
	if len(names) == 0 {
		return slices.DeleteFunc(slices.Clone(known), func(b benchmark) bool { return b.explicit }), nil
	}
	var chosen []benchmark
	for _, name := range names {
		i := slices.IndexFunc(known, func(b benchmark) bool { return b.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no benchmark %q; there are proxied, scale, local, shared, objects, clusters, growth, backends, memory and load, and with -kube-apiserver incumbent, gateway, backends, memory and nodes", name)
		}
		chosen = append(chosen, known[i])
	}
	return chosen, nil
}

func absolute(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	return filepath.Abs(file)
}

// place returns the output directory. Results of a quick run go to a temporary directory by default.
func place(out string, quick bool) (string, error) {
	switch {
	case out != "":
	case quick:
		return os.MkdirTemp("", "portico-bench-quick-")
	default:
		out = record
	}
	return out, os.MkdirAll(out, 0o755)
}

func write(dir, name string, r report) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	page, err := r.Markdown()
	if err != nil {
		return err
	}
	if err := packed.Write(filepath.Join(dir, name+".json"+packed.Suffix), append(data, '\n')); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".md"), page, 0o644)
}
