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

// TestRecord queries a kube-apiserver with its kube-controller-manager. With -write its responses are stored. Otherwise they
// must equal the stored ones.
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
			t.Errorf("%d more differences, want none", len(found)-shown)
			break
		}
		t.Errorf("difference from the record: %s, want none", d)
	}
}

// fill copies the part without responses from the second recording.
func (r *recording) fill(other recording) {
	if r.Personas == nil {
		r.Personas = other.Personas
	}
	if r.Scenarios == nil {
		r.Scenarios = other.Scenarios
	}
}
