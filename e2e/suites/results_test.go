package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestResultsGoOnWhereARunWasCut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results")
	s := suite{module: "example.com/m", version: "v1.0.0"}
	for _, state := range []string{failed, passed} { // the second run finds the first one's result, and replaces it
		store, err := openResults(file)
		if err != nil {
			t.Fatal(err)
		}
		if known := store.contains(s, "example.com/m/p", portico); known != (state == passed) {
			t.Errorf("result before the run %s exists = %t, want it only before the second run", state, known)
		}
		result := packageResult{Module: s.module, Version: s.version, Package: "example.com/m/p", Server: portico, Specs: []spec{{Name: "a", State: state}}}
		if err := store.add(result); err != nil {
			t.Fatal(err)
		}
		if store.contains(s, "example.com/m/p", kubernetes) {
			t.Error("a result of the other server exists, want none")
		}
		if err := store.close(); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all, err := readResults(data)
	if err != nil || len(all) != 1 {
		t.Fatalf("readResults = %v, %v; want one result and no error", err, all)
	}
	for _, p := range all {
		if p.count(passed) != 1 {
			t.Errorf("result = %v, want the last line's", p)
		}
	}
	if _, err := readResults([]byte("{}\nhalf a li")); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("readResults with an invalid line: error = %v, want its line number", err)
	}
}

func TestDifferences(t *testing.T) {
	theirs := packageResult{Specs: []spec{{Name: "same", State: passed}, {Name: "other", State: passed}, {Name: "theirs", State: skipped}}}
	ours := packageResult{Specs: []spec{{Name: "other", State: failed}, {Name: "same", State: passed}, {Name: "ours", State: passed}}}
	want := []difference{{"other", passed, failed}, {"ours", "missing", passed}, {"theirs", skipped, "missing"}}
	if got := differences(theirs, ours); !slices.Equal(got, want) {
		t.Errorf("differences = %v, want %v", got, want)
	}
}

func TestWritePage(t *testing.T) {
	dir := t.TempDir()
	results, page := filepath.Join(dir, "results"), filepath.Join(dir, "page.md")
	lines := `{"module":"sigs.k8s.io/controller-runtime","version":"` + suites[0].version + `","package":"sigs.k8s.io/controller-runtime/pkg/p","server":"kube-apiserver","seconds":12.4,"specs":[{"name":"a | b","state":"passed"}]}
{"module":"sigs.k8s.io/controller-runtime","version":"` + suites[0].version + `","package":"sigs.k8s.io/controller-runtime/pkg/p","server":"portico","seconds":9.6,"specs":[{"name":"a | b","state":"failed"}]}
`
	if err := os.WriteFile(results, []byte(lines), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(page, []byte("before\n"+beginMark+"\nold\n"+endMark+"\nafter\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writePage(results, page); err == nil || !strings.Contains(err.Error(), "no reason why it is passed on kube-apiserver and failed on Portico") {
		t.Errorf("writePage with an unexplained difference: error = %v, want one about the missing reason", err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"before\n" + beginMark, "| `pkg/p` | 1 / 0 / 0 | 12 | 0 / 1 / 0 | 10 |\n", `| a \| b | passed | failed | not known yet |`, endMark + "\nafter\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page has no %q, want it in:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "old") {
		t.Error("the page has the old text between the marks, want it replaced")
	}
	if err := os.WriteFile(page, []byte("no marks"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writePage(results, page); err == nil || !strings.Contains(err.Error(), "has no lines") {
		t.Errorf("writePage without marks: error = %v, want \"has no lines\"", err)
	}
}

func TestReasonOf(t *testing.T) {
	const lifecycle = "sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
	for _, c := range []struct{ path, name, reason, of string }{
		{lifecycle, "DRA Initialization Gating waits", noDevices, "DRA Initialization Gating *"},
		{lifecycle, "Something else", "", ""},
		{"example.com/m", "a", "", ""},
	} {
		if reason, of := reasonOf(c.path, c.name); reason != c.reason || of != c.of {
			t.Errorf("reasonOf %s of %s = %q of %q, want %q of %q", c.name, c.path, reason, of, c.reason, c.of)
		}
	}
}
