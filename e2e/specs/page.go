package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"
)

// provenance describes the run that produced the results of a server.
type provenance struct {
	// Server is the version of the API server.
	Server string `json:"server"`
	// Date is the day of the last result.
	Date string `json:"date"`
	// Limit is the time limit of a spec.
	Limit string `json:"limit"`
}

// notes is the content of notes.yaml: hand-written remarks on the results.
type notes struct {
	// Suite and Kwok are versions.
	Suite string `json:"suite"`
	Kwok  string `json:"kwok"`
	// Nodes is the number of Nodes.
	Nodes int `json:"nodes"`
	// Runs is keyed by server.
	Runs map[string]provenance `json:"runs"`
	// Reasons maps names of specs that pass on kube-apiserver only to the reasons why Portico does not pass them.
	Reasons map[string]string `json:"reasons"`
	// NotRun is the reason why specs that kube-apiserver passes were not run on Portico; empty if all were run.
	NotRun string `json:"notRun,omitempty"`
	// ThroughReasons maps names of specs to the reasons why they pass directly and not through a front door.
	ThroughReasons map[string]string `json:"throughReasons,omitempty"`
}

// reason returns the reason why a spec does not pass, or "" if none is recorded.
func (n *notes) reason(r row) string {
	if why := strings.TrimSpace(n.Reasons[r.Name]); why != "" || r.Ours != notRun {
		return why
	}
	return strings.TrimSpace(n.NotRun)
}

// row is a spec with its outcomes on both servers.
type row struct {
	Name, Theirs, Ours string
	Message            string // Portico's message, unless the spec passed
}

// comparison is the content of the page.
type comparison struct {
	notes
	Selection *selection
	// Both lists the specs that pass on both servers, Differ the specs that pass on kube-apiserver only, and Neither the
	// specs that pass on no server.
	Both, Differ, Neither []row
	// OursOnly lists the specs that pass on Portico only.
	OursOnly []row
	Groups   []group
	Through  through
}

// through contains the outcomes of specs that pass on kube-apiserver, and that were run again through a front door.
type through struct {
	Run, Passed int
	Differ      []row // those that do not pass; Ours is the outcome through the front door
}

func compareThrough(theirs, front map[string]result) (t through) {
	for _, name := range slices.Sorted(maps.Keys(front)) {
		if outcome(theirs, name) != passed {
			continue
		}
		t.Run++
		if r := front[name]; r.Outcome == passed {
			t.Passed++
		} else {
			t.Differ = append(t.Differ, row{name, passed, r.Outcome, r.Message})
		}
	}
	return t
}

// group counts the specs of one SIG.
type group struct {
	Name                               string
	Run, Theirs, Ours, Conformance     int
	ConformanceTheirs, ConformanceOurs int
}

const notRun = "not run"

// compare returns a comparison with each selected spec and each other spec that has results.
func compare(selected []string, theirs, ours map[string]result, n notes, s *selection) *comparison {
	c := &comparison{notes: n, Selection: s}
	names := map[string]bool{}
	for _, name := range selected {
		names[name] = true
	}
	for name := range theirs {
		names[name] = true
	}
	for name := range ours {
		names[name] = true
	}
	groups := map[string]*group{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		r := row{name, outcome(theirs, name), outcome(ours, name), ours[name].Message}
		g := groups[sig(name)]
		if g == nil {
			g = &group{Name: sig(name)}
			groups[g.Name] = g
		}
		g.count(r)
		switch {
		case r.Theirs == passed && r.Ours == passed:
			c.Both = append(c.Both, r)
		case r.Theirs == passed:
			c.Differ = append(c.Differ, r)
		case r.Ours == passed:
			c.OursOnly = append(c.OursOnly, r)
		default:
			c.Neither = append(c.Neither, r)
		}
	}
	for _, g := range groups {
		c.Groups = append(c.Groups, *g)
	}
	slices.SortFunc(c.Groups, func(a, b group) int { return cmp.Compare(a.Name, b.Name) })
	return c
}

func outcome(of map[string]result, name string) string {
	if r, ok := of[name]; ok {
		return r.Outcome
	}
	return notRun
}

func (g *group) count(r row) {
	theirs, ours, conformance := 0, 0, 0
	if r.Theirs == passed {
		theirs = 1
	}
	if r.Theirs == passed && r.Ours == passed {
		ours = 1
	}
	if strings.Contains(r.Name, conformanceMark) {
		conformance = 1
	}
	g.Run++
	g.Theirs += theirs
	g.Ours += ours
	g.Conformance += conformance
	g.ConformanceTheirs += theirs * conformance
	g.ConformanceOurs += ours * conformance
}

var sigMark = regexp.MustCompile(`\[(sig-[a-z-]+)\]`)

func sig(name string) string {
	if m := sigMark.FindStringSubmatch(name); m != nil {
		return m[1]
	}
	return "no SIG"
}

// problems returns the errors in notes.yaml that must be fixed before the page is correct.
func (c *comparison) problems() (all []string) {
	differ := map[string]bool{}
	for _, r := range c.Differ {
		differ[r.Name] = true
		if c.reason(r) == "" {
			all = append(all, fmt.Sprintf("kube-apiserver passes it, Portico: %s, and notes.yaml has no reason: %s", r.Ours, r.Name))
		}
	}
	for _, r := range c.Through.Differ {
		differ[r.Name] = true
		if c.ThroughReasons[r.Name] == "" {
			all = append(all, fmt.Sprintf("it passes directly, through a front door: %s, and notes.yaml has no reason: %s", r.Ours, r.Name))
		}
	}
	for _, reasons := range []map[string]string{c.Reasons, c.ThroughReasons} {
		for _, name := range slices.Sorted(maps.Keys(reasons)) {
			if !differ[name] {
				all = append(all, "notes.yaml has a reason for a spec that does not differ: "+name)
			}
		}
	}
	return all
}

// Why calls reason. The page template uses it.
func (c *comparison) Why(r row) string { return c.reason(r) }

// load reads the results, the selection and the notes from the directory of this command.
func load(dir string) (*comparison, error) {
	theirs, err := readResults(filepath.Join(dir, kubeAPIServer+".jsonl"))
	if err != nil {
		return nil, err
	}
	ours, err := readResults(filepath.Join(dir, portico+".jsonl"))
	if err != nil {
		return nil, err
	}
	front, err := readResults(filepath.Join(dir, throughFront+".jsonl"))
	if err != nil {
		return nil, err
	}
	selected, err := readSelection(filepath.Join(dir, "selection.yaml"))
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(dir, "notes.yaml"))
	if err != nil {
		return nil, err
	}
	var n notes
	if err := yaml.UnmarshalStrict(data, &n); err != nil {
		return nil, fmt.Errorf("notes.yaml: %w", err)
	}
	if data, err = os.ReadFile(filepath.Join(dir, selectedFile)); err != nil {
		return nil, err
	}
	c := compare(strings.Split(strings.TrimSpace(string(data)), "\n"), theirs, ours, n, selected)
	c.Through = compareThrough(theirs, front)
	return c, nil
}

func (c *comparison) markdown() ([]byte, error) {
	var b bytes.Buffer
	err := page.Execute(&b, c)
	return b.Bytes(), err
}

// writePage writes the page, and then returns an error that lists its problems.
func writePage(file string) error {
	c, err := load(directory)
	if err != nil {
		return err
	}
	text, err := c.markdown()
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return err
	}
	if problems := c.problems(); len(problems) > 0 {
		return fmt.Errorf("%d specs differ without a reason, or have one and do not differ:\n%s", len(problems), strings.Join(problems, "\n"))
	}
	return nil
}

// cell escapes text for a cell of a table.
func cell(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;", "*", `\*`, "_", `\_`, "`", "'").Replace(text)
}

var page = template.Must(template.New("page").Funcs(template.FuncMap{"cell": cell, "sum": sum, "add": func(a, b int) int { return a + b }}).Parse(`# Kubernetes' specs on a cluster

This page compares the results of upstream's end-to-end specs ({{.Suite}}, unmodified) on two clusters that differ only in the
API server. Both have kube-controller-manager and kube-scheduler of the same version, and {{.Nodes}} Nodes that kwok {{.Kwok}} simulates, with kwok's
default stages and kubelet server. No containers run: a spec that waits for the output of a container passes on neither cluster.
[Kubernetes' end-to-end specs](../upstream/README.md) lists the specs that need neither Nodes nor controllers, against ` + "`aggregator dev`" + `.

<!-- not run: it runs specs for an hour -->

    $ go run ./e2e/specs -programs DIR -server kube-apiserver
    $ go run ./e2e/specs -programs DIR -server portico
    $ go run ./e2e/specs -programs DIR -server cluster -passed e2e/specs/kube-apiserver.jsonl
    $ go run ./e2e/specs -write e2e/specs/README.md

` + "`make upstream-specs`" + ` builds the programs and runs all four commands. Twenty specs run in parallel; specs that upstream marks as serial run
alone. Upstream's timeouts are five minutes and longer; here each spec has a shorter limit. An interrupted run resumes where it stopped. If a
spec has several results, the page has the last one.

| | API server | time limit of a spec | last run |
|---|---|---|---|
{{range $name, $run := .Runs}}| {{$name}} | {{$run.Server}} | {{$run.Limit}} | {{$run.Date}} |
{{end}}
Portico runs seven controllers in its own process, which is the default. Two flags match kube-apiserver's configuration:
` + "`--authorization-mode=Node,RBAC`" + `, and ` + "`--enable-admission-plugins=StorageObjectInUseProtection`" + `, a plugin that kube-apiserver enables by default.

All Conformance specs are selected. The following specs are selected too:

| names | reason |
|---|---|
{{range .Selection.Also}}| ` + "`{{cell .Names}}`" + ` | {{cell .Because}} |
{{end}}
Of these, the following specs are not run:

| names | reason |
|---|---|
{{range .Selection.LeftOut}}| ` + "`{{cell .Names}}`" + ` | {{cell .Because}} |
{{end}}
## Summary

| | selected | kube-apiserver passes | of these, Portico passes | of Conformance | kube-apiserver passes | of these, Portico passes |
|---|---|---|---|---|---|---|
{{range .Groups}}| {{.Name}} | {{.Run}} | {{.Theirs}} | {{.Ours}} | {{.Conformance}} | {{.ConformanceTheirs}} | {{.ConformanceOurs}} |
{{end}}{{with sum .Groups}}| all | {{.Run}} | {{.Theirs}} | {{.Ours}} | {{.Conformance}} | {{.ConformanceTheirs}} | {{.ConformanceOurs}} |
{{end}}
## kube-apiserver passes, Portico does not
{{if .Differ}}
| spec | Portico | reason |
|---|---|---|
{{range .Differ}}| {{cell .Name}} | {{.Ours}} | {{cell ($.Why .)}} |
{{end}}{{else}}
None.
{{end}}
## Portico passes, kube-apiserver does not
{{if .OursOnly}}
| spec | kube-apiserver |
|---|---|
{{range .OursOnly}}| {{cell .Name}} | {{.Theirs}} |
{{end}}{{else}}
None.
{{end}}
## kube-apiserver behind a front door

Specs that kube-apiserver passes were run on it again through [a front door for existing clusters](../../docs/fleet.md), below ` + "`/clusters/NAME`" + `. The user
is an administrator of the front door and a member of ` + "`system:masters`" + ` in the cluster (` + "`spec.identity.systemGroups`" + `). At the front door, all
authenticated users have all rights on clusters/proxy, because specs impersonate users. In the cluster, the account of the front door may only
impersonate users and review tokens. The other programs of the cluster are not behind the front door. Of the {{len .Both | add (len .Differ)}} specs,
{{.Through.Run}} were run, and {{.Through.Passed}} passed.
{{if .Through.Differ}}
| spec | through the front door | reason |
|---|---|---|
{{range .Through.Differ}}| {{cell .Name}} | {{.Ours}} | {{cell (index $.ThroughReasons .Name)}} |
{{end}}{{end}}
## Both pass

| spec |
|---|
{{range .Both}}| {{cell .Name}} |
{{end}}
## Neither passes

*limit*: the spec exceeded the time limit. *skipped*: the spec skipped itself. *not run*: the run ended without a result for the spec.

| spec | kube-apiserver | Portico |
|---|---|---|
{{range .Neither}}| {{cell .Name}} | {{.Theirs}} | {{.Ours}} |
{{end}}`))

func sum(all []group) group {
	var total group
	for _, g := range all {
		total.Run += g.Run
		total.Theirs += g.Theirs
		total.Ours += g.Ours
		total.Conformance += g.Conformance
		total.ConformanceTheirs += g.ConformanceTheirs
		total.ConformanceOurs += g.ConformanceOurs
	}
	return total
}
