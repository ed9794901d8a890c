package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"portico.dev/e2e/packed"
)

const (
	beginMark = "<!-- begin suites: written by go run ./e2e/suites -from FILE -write PAGE -->"
	endMark   = "<!-- end suites -->"
)

// writePage replaces the text between the marks of a page with the tables. After it has written the page, it returns an error
// that lists the specs that differ without a reason.
func writePage(results, page string) error {
	data, err := packed.Read(results)
	if err != nil {
		return err
	}
	all, err := readResults(data)
	if err != nil {
		return fmt.Errorf("%s: %w", results, err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), beginMark)
	_, after, foundEnd := strings.Cut(rest, endMark)
	if !found || !foundEnd {
		return fmt.Errorf("%s has no lines %q and %q", page, beginMark, endMark)
	}
	var tables bytes.Buffer
	var unexplained []error
	for _, s := range suites {
		unexplained = append(unexplained, writeSuite(&tables, s, all)...)
	}
	whole := before + beginMark + "\n" + tables.String() + endMark + after
	return errors.Join(append(unexplained, os.WriteFile(page, []byte(whole), 0o644))...)
}

// writeSuite writes the tables of a module. They contain the packages that have results.
func writeSuite(to *bytes.Buffer, s suite, all map[key]packageResult) (unexplained []error) {
	var paths []string
	for k := range all {
		if k.module == s.module && k.version == s.version && !slices.Contains(paths, k.path) {
			paths = append(paths, k.path)
		}
	}
	if len(paths) == 0 {
		return nil
	}
	slices.Sort(paths)
	fmt.Fprintf(to, "\n### %s %s\n\n", s.module, s.version)
	to.WriteString("Passed, failed and skipped specs, and seconds.\n\n| package | kube-apiserver | s | Portico | s |\n|---|---|---|---|---|\n")
	var differing []string
	for _, path := range paths {
		theirs, haveTheirs := all[key{s.module, s.version, path, kubernetes}]
		ours, haveOurs := all[key{s.module, s.version, path, portico}]
		fmt.Fprintf(to, "| `%s` | %s | %s |\n", strings.TrimPrefix(path, s.module+"/"), cells(theirs, haveTheirs), cells(ours, haveOurs))
		if !haveTheirs || !haveOurs {
			continue
		}
		rows, without := explain(path, differences(theirs, ours))
		for _, r := range rows {
			differing = append(differing, fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", strings.TrimPrefix(path, s.module+"/"), cell(r.name), r.theirs, r.ours, r.reason))
		}
		unexplained = append(unexplained, without...)
	}
	if len(differing) > 0 {
		to.WriteString("\n| package | spec that differs | kube-apiserver | Portico | reason |\n|---|---|---|---|---|\n")
		to.WriteString(strings.Join(differing, ""))
	}
	return unexplained
}

// explained is a row of the table of differences: one difference, or all differences with the same reason.
type explained struct {
	difference
	reason string
}

// explain adds the reasons to the differences of a package, and returns an error for each difference without a reason.
func explain(path string, all []difference) (rows []explained, without []error) {
	counts := map[explained]int{}
	for _, d := range all {
		reason, of := reasonOf(path, d.name)
		if reason == "" {
			rows = append(rows, explained{d, "not known yet"})
			without = append(without, fmt.Errorf("%s: %s: no reason why it is %s on kube-apiserver and %s on Portico", path, d.name, d.theirs, d.ours))
			continue
		}
		row := explained{difference{of, d.theirs, d.ours}, reason}
		if counts[row]++; counts[row] == 1 {
			rows = append(rows, row)
		}
	}
	for i, row := range rows {
		if n := counts[row]; strings.HasSuffix(row.name, "*") {
			rows[i].name = fmt.Sprintf("%s (%d specs)", row.name, n)
		}
	}
	return rows, without
}

func cells(p packageResult, have bool) string {
	switch {
	case !have:
		return "not run |"
	case p.Problem != "" && len(p.Specs) == 0:
		problem, _, _ := strings.Cut(p.Problem, ":")
		return cell(problem) + " |"
	}
	return fmt.Sprintf("%d / %d / %d | %.0f", p.count(passed), p.count(failed), p.count(skipped), p.Seconds)
}

// cell escapes text for a cell of a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`, "_", `\_`, "\n", " ").Replace(text)
}

// difference is a spec with different states on the two servers.
type difference struct{ name, theirs, ours string }

// differences returns the specs that have different states or only one result, sorted by name.
func differences(theirs, ours packageResult) []difference {
	const missing = "missing"
	states := map[string]*difference{}
	of := func(name string) *difference {
		if states[name] == nil {
			states[name] = &difference{name, missing, missing}
		}
		return states[name]
	}
	for _, s := range theirs.Specs {
		of(s.Name).theirs = s.State
	}
	for _, s := range ours.Specs {
		of(s.Name).ours = s.State
	}
	var all []difference
	for _, d := range states {
		if d.theirs != d.ours {
			all = append(all, *d)
		}
	}
	slices.SortFunc(all, func(a, b difference) int { return strings.Compare(a.name, b.name) })
	return all
}
