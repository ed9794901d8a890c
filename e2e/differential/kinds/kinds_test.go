package kinds

import (
	"flag"
	"maps"
	"os"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"portico.dev/e2e/differential/known"
	"portico.dev/e2e/programs"
)

var (
	recordFrom = flag.String("record", "", "kubeconfig of a kube-apiserver whose answers are to be written down")
	missing    = flag.Bool("missing", false, "with -record, ask only what has no answer yet, with the questions around it")
	against    = flag.String("against", "", "kubeconfig of a server to ask; default a front door of its own")
	report     = flag.String("report", "", "file for all unexplained differences; the test shows the first ones")
)

const (
	recorded = "testdata/recorded.json.zst"
	shown    = 40
	// atOnce is the number of objects that are queried in parallel.
	atOnce = 4
)

// The responses of a front door about every kind are kube-apiserver's, except for the known differences.
func TestKinds(t *testing.T) {
	scripts, order := everything(t)
	if *recordFrom != "" {
		record(t, *recordFrom, scripts, order)
	}
	theirs, err := read(recorded)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range order {
		if theirs[name] == nil {
			t.Fatalf("%s: no recorded response of kube-apiserver, want one: record again", name)
		}
	}
	kubeconfig := *against
	if kubeconfig == "" {
		kubeconfig = frontDoor(t)
	}
	ours := answers(t, kubeconfig, scripts, *against != "")
	found := ours.compare(theirs, order)
	list, err := known.Load("testdata/known.yaml")
	if err != nil {
		t.Fatal(err)
	}
	unexplained, idle := known.Explain(found, list)
	for i, d := range unexplained {
		if i == shown {
			t.Errorf("%d more unexplained differences, want none", len(unexplained)-shown)
			break
		}
		t.Errorf("unexplained difference: %s, want none", d)
	}
	for _, k := range idle {
		t.Errorf("%s is listed as a difference and does not occur, want it removed", k)
	}
	if *report != "" {
		writeReport(t, unexplained)
	}
	t.Logf("%d questions, %d differences, %d of them explained", len(order), len(found), len(found)-len(unexplained))
}

func everything(t *testing.T) (scripts []script, order []string) {
	t.Helper()
	dir, err := fixtures()
	if err != nil {
		t.Fatal(err)
	}
	all, err := subjects(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		scripts = append(scripts, script{namespace: s.namespace, questions: s.questions()})
	}
	more, err := scenarios()
	if err != nil {
		t.Fatal(err)
	}
	scripts = append(scripts, more...)
	for _, s := range scripts {
		for _, q := range s.questions {
			order = append(order, q.Name)
		}
	}
	return scripts, order
}

// answers sends all questions. With breaks, an aborted stream counts as a response: kube-apiserver aborts it if a request
// causes a panic, and a front door never may.
func answers(t *testing.T, kubeconfig string, scripts []script, breaks bool) recording {
	t.Helper()
	s, err := newServer(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	s.breaks = breaks
	t.Cleanup(s.client.CloseIdleConnections)
	all := recording{}
	var beside, alone []script // stories change global state, such as the default class of claims
	for _, one := range scripts {
		if one.alone {
			alone = append(alone, one)
		} else {
			beside = append(beside, one)
		}
	}
	for _, part := range []struct {
		scripts []script
		atOnce  int
	}{{beside, atOnce}, {alone, 1}} {
		r, err := s.record(t.Context(), part.scripts, part.atOnce)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(all, r)
	}
	return all
}

// record stores the responses of a server. Known responses are kept if only the missing ones are requested.
func record(t *testing.T, kubeconfig string, scripts []script, order []string) {
	t.Helper()
	all := recording{}
	if *missing {
		var err error
		if all, err = read(recorded); err != nil {
			t.Fatal(err)
		}
		scripts = all.lacking(scripts)
	}
	maps.Copy(all, answers(t, kubeconfig, scripts, true))
	if err := all.write(recorded, order); err != nil {
		t.Fatal(err)
	}
}

func frontDoor(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := programs.Build(dir, "aggregator"); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	p, kubeconfig, err := programs.StartDev(dir, home, nil)
	if p != nil {
		t.Cleanup(func() {
			p.Finish(t)
			p.Show(t)
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

func writeReport(t *testing.T, all []known.Difference) {
	t.Helper()
	text, err := yaml.Marshal(slices.Clone(all))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(*report, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
