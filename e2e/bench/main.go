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
	"syscall"
	"time"

	"portico.dev/e2e/bench/backends"
	"portico.dev/e2e/bench/environment"
	"portico.dev/e2e/bench/gateway"
	"portico.dev/e2e/bench/incumbent"
	"portico.dev/e2e/bench/local"
	"portico.dev/e2e/bench/measure"
	"portico.dev/e2e/bench/memory"
	"portico.dev/e2e/bench/proxied"
	"portico.dev/e2e/bench/scale"
	"portico.dev/e2e/bench/shared"
)

// limit is how long a run may take, whatever is measured.
const limit = 20 * time.Minute

// report is what one of the benchmarks found.
type report interface {
	Markdown() ([]byte, error)
}

// benchmark runs within ctx and says how far it is.
type benchmark struct {
	name string
	run  func(ctx context.Context, program string, quick bool, say func(string, ...any)) (report, error)
	// asked: it is made only when it is named.
	asked bool
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
	manyBackends(environment.Kubernetes{}),
	underLoad(environment.Kubernetes{}),
}

// manyBackends measures kube-apiserver too if its programs are given.
func manyBackends(theirs environment.Kubernetes) benchmark {
	return benchmark{name: "backends", asked: true, run: func(ctx context.Context, program string, quick bool, say func(string, ...any)) (report, error) {
		settings := backends.Full()
		if quick {
			settings = backends.Quick()
		}
		return backends.Run(ctx, program, theirs, settings, say)
	}}
}

// underLoad measures memory, kube-apiserver's too if its programs are given.
func underLoad(theirs environment.Kubernetes) benchmark {
	return benchmark{name: "memory", asked: true, run: func(ctx context.Context, program string, quick bool, say func(string, ...any)) (report, error) {
		settings := memory.Full()
		if quick {
			settings = memory.Quick()
		}
		return memory.Run(ctx, program, theirs, settings, say)
	}}
}

// besides are the benchmarks that need somebody else's programs; they are made only when those are given.
func besides(theirs environment.Kubernetes) []benchmark {
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
	}
}

// builds is the benchmark that needs another build; it is made only when it is asked for.
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
	out := flag.String("out", "", "directory for the pages; default docs/bench, with -quick a temporary one")
	quick := flag.Bool("quick", false, "short stretches, few clients: only to see whether everything works")
	program := flag.String("aggregator", "", "measure this program; default one built from the tree")
	before := flag.String("before", "", "another build of the aggregator, which \"builds\" compares with")
	var theirs environment.Kubernetes
	flag.StringVar(&theirs.APIServer, "kube-apiserver", "", "measure the aggregator beside, and behind, this program, and nothing else")
	flag.StringVar(&theirs.ControllerManager, "kube-controller-manager", "", "of the same version, for what needs its controllers")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: bench [-quick] [-out DIR] [-aggregator FILE] [proxied] [scale] [local] [shared] [backends] [memory]\n"+
			"       bench [-quick] [-out DIR] [-aggregator FILE] -before FILE builds\n"+
			"       bench [-quick] [-out DIR] [-aggregator FILE] -kube-apiserver FILE -kube-controller-manager FILE [incumbent] [gateway] [backends] [memory]")
		flag.PrintDefaults()
	}
	flag.Parse()
	for _, file := range []*string{program, before, &theirs.APIServer, &theirs.ControllerManager} {
		var err error
		if *file, err = absolute(*file); err != nil { // they are started in directories of their own
			return err
		}
	}
	chosen, err := choose(flag.Args(), *before, theirs)
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

func choose(names []string, before string, theirs environment.Kubernetes) ([]benchmark, error) {
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
	known := benchmarks
	if theirs != (environment.Kubernetes{}) {
		known = besides(theirs)
	}
	if len(names) == 0 {
		return slices.DeleteFunc(slices.Clone(known), func(b benchmark) bool { return b.asked }), nil
	}
	var chosen []benchmark
	for _, name := range names {
		i := slices.IndexFunc(known, func(b benchmark) bool { return b.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no benchmark %q; there are proxied, scale, local, shared, backends and memory, and with -kube-apiserver incumbent, gateway, backends and memory", name)
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

// place keeps what a quick run found apart from the record.
func place(out string, quick bool) (string, error) {
	switch {
	case out != "":
	case quick:
		return os.MkdirTemp("", "portico-bench-quick-")
	default:
		out = filepath.Join("docs", "bench")
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
	if err := os.WriteFile(filepath.Join(dir, name+".json"), append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".md"), page, 0o644)
}
