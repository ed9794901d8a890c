// Command fuzz runs the fuzz targets of the repository, one after the other, and stops at the first finding. go test writes the
// finding to testdata/fuzz, and it is a test case from then on.
//
//	go run ./e2e/fuzz                       # every target for a minute
//	go run ./e2e/fuzz -time 2000x -cheap    # a part, as in .ci/release-checks
//	go run ./e2e/fuzz -run 'Differential'   # targets with a matching package and name
//	go run ./e2e/fuzz -list
//	go run ./e2e/fuzz -record               # records requests of kubectl and curl as seeds (record.go)
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	each := flag.String("time", "60s", "how long each target runs, or how many inputs (2000x)")
	match := flag.String("run", "", "only targets whose package and name, joined by a dot, match")
	skip := flag.String("skip", "", "leave out those that match")
	cheap := flag.Bool("cheap", false, "only packages that build quickly: their tests link no k8s.io/apiserver and no etcd server")
	workers := flag.Int("workers", 0, "fuzz processes at a time; 0 is go test's default")
	list := flag.Bool("list", false, "name the targets, and run none")
	record := flag.Bool("record", false, "record what clients and servers say, and run nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := func() error {
		if *record {
			return recordSeeds(ctx)
		}
		targets, err := find(ctx, *match, *skip, *cheap)
		if err != nil {
			return err
		}
		if *list {
			for _, t := range targets {
				fmt.Println(t.name())
			}
			return nil
		}
		return runAll(ctx, targets, *each, *workers)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// target is a fuzz test.
type target struct{ pkg, test string }

const module = "portico.dev/"

func (t target) name() string { return strings.TrimPrefix(t.pkg, module) + "." + t.test }

var declared = regexp.MustCompile(`(?m)^func (Fuzz\w*)\(\w+ \*testing\.F\)`)

// heavy are prefixes of packages that take minutes to build with the coverage instrumentation for fuzzing.
var heavy = []string{"k8s.io/apiserver/", "go.etcd.io/etcd/server/"}

// find reads the targets from the source files, because listing the targets of test binaries would require building all of them.
func find(ctx context.Context, match, skip string, cheap bool) (targets []target, err error) {
	wanted, err := regexp.Compile(match)
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	unwanted, err := regexp.Compile(cmp.Or(skip, "^$"))
	if err != nil {
		return nil, fmt.Errorf("-skip: %w", err)
	}
	out, err := output(ctx, "go", "list", "-f", `{{$p := .}}{{range .TestGoFiles}}{{$p.ImportPath}} {{$p.Dir}} {{.}}
{{end}}{{range .XTestGoFiles}}{{$p.ImportPath}} {{$p.Dir}} {{.}}
{{end}}`, "work")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) != 3 {
			continue
		}
		source, err := os.ReadFile(filepath.Join(words[1], words[2]))
		if err != nil {
			return nil, err
		}
		for _, m := range declared.FindAllSubmatch(source, -1) {
			if t := (target{words[0], string(m[1])}); wanted.MatchString(t.name()) && !unwanted.MatchString(t.name()) {
				targets = append(targets, t)
			}
		}
	}
	if cheap {
		if targets, err = withoutHeavy(ctx, targets); err != nil {
			return nil, err
		}
	}
	if len(targets) == 0 {
		return nil, errors.New("no fuzz target is as -run says: see -list")
	}
	return targets, nil
}

// withoutHeavy removes the targets of packages with tests that link heavy packages.
func withoutHeavy(ctx context.Context, targets []target) ([]target, error) {
	var packages []string
	for _, t := range targets {
		if !slices.Contains(packages, t.pkg) {
			packages = append(packages, t.pkg)
		}
	}
	if len(packages) == 0 {
		return nil, nil
	}
	out, err := output(ctx, "go", append([]string{"list", "-test", "-f", `{{if eq .Name "main"}}{{.ImportPath}}{{range .Deps}} {{.}}{{end}}{{end}}`}, packages...)...)
	if err != nil {
		return nil, err
	}
	linksHeavy := map[string]bool{}
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		linksHeavy[strings.TrimSuffix(words[0], ".test")] = slices.ContainsFunc(words[1:], func(dep string) bool {
			return slices.ContainsFunc(heavy, func(h string) bool { return strings.HasPrefix(dep, h) })
		})
	}
	return slices.DeleteFunc(targets, func(t target) bool { return linksHeavy[t.pkg] }), nil
}

var progress = regexp.MustCompile(`execs: (\d+)`)

// runAll runs targets until one has a finding.
func runAll(ctx context.Context, targets []target, each string, workers int) error {
	for _, t := range targets {
		args := []string{"test", "-run", "^$", "-fuzz", "^" + t.test + "$", "-fuzztime", each, "-fuzzminimizetime", "10x"}
		if workers > 0 {
			args = append(args, "-parallel", fmt.Sprint(workers))
		}
		began := time.Now()
		out, err := output(ctx, "go", append(args, t.pkg)...)
		if err != nil {
			return fmt.Errorf("%s: %w\n\nThe input is kept under testdata/fuzz/%s of the package, and is a test case from now on:\n\tgo test -run '^%s$' ./%s",
				t.name(), err, t.test, t.test, strings.TrimPrefix(t.pkg, module))
		}
		execs := "?"
		if all := progress.FindAllStringSubmatch(out, -1); len(all) > 0 {
			execs = all[len(all)-1][1]
		}
		fmt.Printf("%-60s %10s inputs in %v\n", t.name(), execs, time.Since(began).Round(time.Second))
	}
	return nil
}

// output returns the standard output of a command. The error contains standard error.
func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var out, wrong bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &wrong
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", name, err, out.String(), wrong.String())
	}
	return out.String(), nil
}
