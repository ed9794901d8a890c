package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The records are complete and have explanations, and the page has the same results.
func TestRecorded(t *testing.T) {
	c, err := load(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range c.problems() {
		t.Errorf("problem in the records: %v, want none", problem)
	}
	for _, list := range [][]row{c.Both, c.Differ, c.OursOnly, c.Neither} {
		for _, r := range list {
			if !c.Selection.contains(r.Name) {
				t.Errorf("a spec with results is not selected, want it selected: %s", r.Name)
			}
		}
	}
	for _, server := range []string{portico, kubeAPIServer, throughFront} {
		if run := c.Runs[server]; run.Server == "" || run.Date == "" || run.Limit == "" {
			t.Errorf("notes.yaml on the run of %s = %+v, want the server, the date and the limit", server, run)
		}
	}
	want, err := c.markdown()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("README.md")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("e2e/specs/README.md differs from the records (%v), want equal content: go run ./e2e/specs -write e2e/specs/README.md", err)
	}
}

func TestCompare(t *testing.T) {
	theirs := map[string]result{
		"[sig-a] one [Conformance]": {Outcome: passed}, "[sig-a] two": {Outcome: passed}, "[sig-b] three": {Outcome: limited}, "[sig-b] four": {Outcome: failed}, "[sig-b] five": {Outcome: passed},
	}
	ours := map[string]result{
		"[sig-a] one [Conformance]": {Outcome: passed}, "[sig-a] two": {Outcome: failed, Message: "it did not"}, "[sig-b] three": {Outcome: passed}, "[sig-b] four": {Outcome: skipped},
	}
	c := compare([]string{"[sig-b] six", "[sig-a] two"}, theirs, ours, notes{Reasons: map[string]string{"[sig-a] two": "because", "[sig-b] four": "old"}}, &selection{})
	if len(c.Both) != 1 || len(c.Differ) != 2 || len(c.OursOnly) != 1 || len(c.Neither) != 2 || c.Neither[1].Ours != notRun {
		t.Errorf("compare = %+v, want 1 passed by both, 2 differences, 1 of Portico alone and 2 failed by both", c)
	}
	if total := sum(c.Groups); total != (group{Run: 6, Theirs: 3, Ours: 1, Conformance: 1, ConformanceTheirs: 1, ConformanceOurs: 1}) {
		t.Errorf("sum of the groups = %+v, want 6 run, 3 and 1 passed", total)
	}
	problems := strings.Join(c.problems(), "\n")
	for _, want := range []string{"Portico: not run, and notes.yaml has no reason: [sig-b] five", "does not differ: [sig-b] four"} {
		if !strings.Contains(problems, want) {
			t.Errorf("problems have no %q, want it: %s", want, problems)
		}
	}
	if len(c.problems()) != 2 {
		t.Errorf("problems = %s, want 2", problems)
	}
	c.NotRun = "there was no time"
	if problems := c.problems(); len(problems) != 1 || !strings.Contains(problems[0], "[sig-b] four") {
		t.Errorf("problems with a reason for the omitted spec = %q, want 1", problems)
	}
}

// Specs that do not pass directly say nothing about the front door.
func TestCompareThrough(t *testing.T) {
	theirs := map[string]result{"one": {Outcome: passed}, "two": {Outcome: passed}, "three": {Outcome: passed}, "four": {Outcome: failed}}
	c := comparison{
		notes:   notes{ThroughReasons: map[string]string{"two": "because", "one": "old"}},
		Through: compareThrough(theirs, map[string]result{"one": {Outcome: passed}, "two": {Outcome: failed}, "four": {Outcome: failed}}),
	}
	if got := c.Through; got.Run != 2 || got.Passed != 1 || len(got.Differ) != 1 || got.Differ[0].Name != "two" {
		t.Errorf("compareThrough = %+v, want 2 run, 1 passed and \"two\" in the list", got)
	}
	if problems := c.problems(); len(problems) != 1 || !strings.Contains(problems[0], "does not differ: one") {
		t.Errorf("problems with an old reason = %q, want it", problems)
	}
	c.ThroughReasons = nil
	if problems := c.problems(); len(problems) != 1 || !strings.Contains(problems[0], "no reason: two") {
		t.Errorf("problems without a reason = %q, want the spec", problems)
	}
}

func TestResults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results")
	if got, err := readResults(file); err != nil || len(got) != 0 {
		t.Errorf("readResults of a missing file = %v, %v; want none and no error", got, err)
	}
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"name":"a","outcome":"limit","seconds":75}` + "\n" + `{"name":"b","outcome":"passed"}` + "\n" + `{"name":"a","outcome":"passed"}` + "\n")
	if got, err := readResults(file); err != nil || len(got) != 2 || got["a"].Outcome != passed {
		t.Errorf("readResults with two lines of a spec = %v, %v; want the last one", got, err)
	}
	write("{\n")
	if _, err := readResults(file); err == nil || !strings.Contains(err.Error(), ":1 is no result") {
		t.Errorf("readResults with a truncated line: error = %v, want its line number", err)
	}
}
