package rights

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"portico.dev/e2e/differential/known"
	"portico.dev/e2e/programs"
)

const (
	recorded = "testdata/recorded.json.zst"
	// shown limits the differences in a failure.
	shown = 40
	// atOnce is the number of personas that are queried in parallel.
	atOnce = 4
)

var (
	built  = flag.String("programs", "", "directory of built programs; default they are built")
	part   = flag.String("part", "", "ask only this: grid or scenarios; default both")
	report = flag.String("report", "", "file for all unexplained differences; the test shows the first ones")
)

// The responses of a front door to users without an administrator's rights are kube-apiserver's, except for the known
// differences.
func TestRights(t *testing.T) {
	theirs, err := readRecording(recorded)
	if err != nil {
		t.Fatal(err)
	}
	list, err := known.Load("testdata/known.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ours := hear(t, frontDoor(t), theirs.Resources)
	theirs.only(ours)
	found := ours.compare(theirs)
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
		var out strings.Builder
		for _, d := range unexplained {
			out.WriteString(d.String() + "\n")
		}
		if err := os.WriteFile(*report, []byte(out.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	questions := len(ours.Scenarios)
	for _, said := range ours.Personas {
		questions += len(said)
	}
	t.Logf("held against kube-apiserver %s: %d personas, %d questions, %d differences, %d of them explained",
		theirs.Version, len(ours.Personas), questions, len(found), len(found)-len(unexplained))
}

// hear creates the objects at a server and sends all questions. Without resources it uses the server's list.
func hear(t *testing.T, kubeconfig string, resources []resource) recording {
	t.Helper()
	s, err := newServer(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	all, err := personas()
	if err != nil {
		t.Fatal(err)
	}
	w, err := newEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := s.make(t.Context(), w, all); err != nil {
		t.Fatal(err)
	}
	if resources == nil {
		if resources, err = s.resources(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r := recording{Resources: resources}
	ready := time.Now()
	if *part != "scenarios" {
		if r.Personas, err = s.interview(t.Context(), w, all, resources, atOnce); err != nil {
			t.Fatal(err)
		}
	}
	asked := time.Now()
	if *part != "grid" {
		if r.Scenarios, err = s.scenarios(t.Context(), all); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("the world was made in %s, the grid took %s, the scenarios %s", ready.Sub(began), asked.Sub(ready), time.Since(asked))
	return r
}

// frontDoor starts a front door with the personas.
func frontDoor(t *testing.T) (kubeconfig string) {
	t.Helper()
	dir := *built
	if dir == "" {
		dir = t.TempDir()
		if err := programs.Build(dir, "aggregator"); err != nil {
			t.Fatal(err)
		}
	}
	tokens := tokenFile(t)
	p, kubeconfig, err := programs.StartDev(dir, t.TempDir(), nil, "--token-auth-file", tokens,
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction")
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

// tokenFile writes the token file of both servers.
func tokenFile(t *testing.T) string {
	t.Helper()
	all, err := personas()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tokens.csv")
	if err := writeTokenFile(file, all); err != nil {
		t.Fatal(err)
	}
	return file
}
