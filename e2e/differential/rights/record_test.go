//go:build incumbent

package rights

import (
	"errors"
	"flag"
	"io/fs"
	"testing"

	"portico.dev/e2e/behind/cluster"
	"portico.dev/e2e/programs"
	"portico.dev/internal/run/freeport"
)

var write = flag.Bool("write", false, "write down what kube-apiserver answers")

// TestRecord asks a kube-apiserver, with its kube-controller-manager. With -write its answers are written down; otherwise
// they must be those that were.
func TestRecord(t *testing.T) {
	dir := *built
	if dir == "" {
		dir = t.TempDir()
		if err := programs.Build(dir, "kube-apiserver", "kube-controller-manager"); err != nil {
			t.Fatal(err)
		}
	}
	k, err := cluster.New(cluster.Config{Programs: dir, Dir: t.TempDir(), Ports: &freeport.Ports{}, APIServerFlags: []string{"--token-auth-file=" + tokenFile(t)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := hear(t, k.Kubeconfig, nil)
	if r.Version, err = k.Version(t.Context()); err != nil {
		t.Fatal(err)
	}
	theirs, err := readRecording(recorded)
	if err != nil && !(*write && errors.Is(err, fs.ErrNotExist)) {
		t.Fatal(err)
	}
	if *write {
		r.fill(theirs)
		if err := r.write(recorded); err != nil {
			t.Fatal(err)
		}
		return
	}
	theirs.only(r)
	found := r.compare(theirs)
	for i, d := range found {
		if i == shown {
			t.Errorf("and %d more", len(found)-shown)
			break
		}
		t.Errorf("now and then differ: %s", d)
	}
}

// fill takes the part that was not asked from the other.
func (r *recording) fill(other recording) {
	if r.Personas == nil {
		r.Personas = other.Personas
	}
	if r.Scenarios == nil {
		r.Scenarios = other.Scenarios
	}
}
