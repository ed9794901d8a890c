// Command inventory measures the cost of the tests: for each test package the time to link its binary, and for each test its
// duration, its CPU time, its number of processes, and the time that it waits. It prints Markdown.
//
//	go run ./e2e/inventory [-top 50] [-alone 500ms] [-o json] [PACKAGE...]
//
// Each package is run once as a whole. Tests that took at least -alone are run again, one at a time, so that their CPU time and
// processes are not mixed with other tests. The cost of the package without any test (its TestMain) is subtracted. The wait of a
// test is its duration minus its CPU time. No other load should run on the machine.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"
)

// report is the output of -o json.
type report struct {
	Packages []testedPackage `json:"packages"`
	Tests    []testedTest    `json:"tests"`

	found func(count int) // see countDescendants
}

// testedPackage is one test binary. Durations are in seconds.
type testedPackage struct {
	Package   string  `json:"package"`
	Tests     int     `json:"tests"`
	LinkCPU   float64 `json:"linkCPUSeconds"`
	Link      float64 `json:"linkSeconds"`
	Seconds   float64 `json:"seconds"`
	CPU       float64 `json:"cpuSeconds"`
	Processes int     `json:"processes"`
	Failed    bool    `json:"failed,omitempty"`
}

// testedTest is one top-level test. CPU, Wait and Processes are measured only if Alone is true.
type testedTest struct {
	Package   string  `json:"package"`
	Test      string  `json:"test"`
	Seconds   float64 `json:"seconds"`
	Alone     bool    `json:"alone"`
	CPU       float64 `json:"cpuSeconds"`
	Wait      float64 `json:"waitSeconds"`
	Processes int     `json:"processes"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	top := flag.Int("top", 50, "`number` of the most expensive tests to list; 0 lists all")
	alone := flag.Duration("alone", 500*time.Millisecond, "run tests that take at least this long by themselves too")
	output := flag.String("o", "", "json to print everything for programs")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: inventory [flags] [PACKAGE...]\n\nThe default packages are those of README.md's test command.")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *output != "" && *output != "json" {
		return fmt.Errorf("-o %s: want json, or nothing for Markdown", *output)
	}
	patterns := flag.Args()
	if len(patterns) == 0 {
		patterns = []string{"./e2e", "./cmd/...", "./internal/...", "./pkg/..."}
	}
	packages, err := list(patterns)
	if err != nil {
		return err
	}
	var progress io.Writer = io.Discard
	if term.IsTerminal(int(os.Stderr.Fd())) {
		progress = os.Stderr
	}
	var all report
	for i, p := range packages {
		fmt.Fprintf(progress, "\r%d of %d: %s\x1b[K", i+1, len(packages), p.ImportPath)
		if err := all.measure(p, *alone); err != nil {
			return fmt.Errorf("%s: %w", p.ImportPath, err)
		}
	}
	fmt.Fprint(progress, "\r\x1b[K")
	slices.SortFunc(all.Tests, func(a, b testedTest) int { return -compare(cost(a), cost(b)) })
	slices.SortFunc(all.Packages, func(a, b testedPackage) int { return -compare(a.Seconds+a.Link, b.Seconds+b.Link) })
	if *output == "json" {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(all)
	}
	return all.print(os.Stdout, *top)
}

// cost is the sort key of tests: the duration, or the CPU time if it is greater because the test uses several processors.
func cost(t testedTest) float64 { return max(t.Seconds, t.CPU) }

func compare(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

type listed struct{ ImportPath, Dir string }

// list returns the packages that have tests.
func list(patterns []string) ([]listed, error) {
	out, err := goCommand("", append([]string{"list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}\t{{.Dir}}{{end}}"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	var packages []listed
	for line := range strings.Lines(string(out)) {
		if path, dir, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			packages = append(packages, listed{path, dir})
		}
	}
	if len(packages) == 0 {
		return nil, fmt.Errorf("no package with tests matches %s", strings.Join(patterns, " "))
	}
	return packages, nil
}

func goCommand(dir string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, complaints.String())
	}
	return out, nil
}

func (r *report) print(w io.Writer, top int) error {
	tests := r.Tests
	if top > 0 && len(tests) > top {
		tests = tests[:top]
	}
	table := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(table, "| package\t| test\t| s\t| CPU s\t| waits s\t| processes\t|")
	fmt.Fprintln(table, "|---\t|---\t|---\t|---\t|---\t|---\t|")
	for _, t := range tests {
		cpu, wait, processes := "", "", ""
		if t.Alone {
			cpu, wait, processes = fmt.Sprintf("%.1f", t.CPU), fmt.Sprintf("%.1f", t.Wait), fmt.Sprint(t.Processes)
		}
		fmt.Fprintf(table, "| %s\t| %s\t| %.1f\t| %s\t| %s\t| %s\t|\n", short(t.Package), t.Test, t.Seconds, cpu, wait, processes)
	}
	fmt.Fprintln(table, "\n| package\t| tests\t| link s\t| link CPU s\t| run s\t| run CPU s\t| processes\t|")
	fmt.Fprintln(table, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
	var sum testedPackage
	for _, p := range r.Packages {
		name := short(p.Package)
		if p.Failed {
			name += " (failed)"
		}
		fmt.Fprintf(table, "| %s\t| %d\t| %.1f\t| %.1f\t| %.1f\t| %.1f\t| %d\t|\n", name, p.Tests, p.Link, p.LinkCPU, p.Seconds, p.CPU, p.Processes)
		sum.Tests, sum.Link, sum.LinkCPU = sum.Tests+p.Tests, sum.Link+p.Link, sum.LinkCPU+p.LinkCPU
		sum.Seconds, sum.CPU, sum.Processes = sum.Seconds+p.Seconds, sum.CPU+p.CPU, sum.Processes+p.Processes
	}
	fmt.Fprintf(table, "| all %d\t| %d\t| %.1f\t| %.1f\t| %.1f\t| %.1f\t| %d\t|\n", len(r.Packages), sum.Tests, sum.Link, sum.LinkCPU, sum.Seconds, sum.CPU, sum.Processes)
	return table.Flush()
}

func short(path string) string { return strings.TrimPrefix(path, "portico.dev/") }
