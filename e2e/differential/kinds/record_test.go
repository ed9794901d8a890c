//go:build incumbent

package kinds

import (
	"flag"
	"testing"

	"portico.dev/e2e/behind/cluster"
	"portico.dev/e2e/programs"
	"portico.dev/internal/run/freeport"
)

var (
	built   = flag.String("programs", "", "directory of built programs; default they are built")
	toWrite = flag.Bool("write", false, "write down what a kube-apiserver answers")
)

// TestRecord, with -write, stores the responses of a kube-apiserver; with -missing, only the missing ones. No controller that
// acts on the objects runs with it.
func TestRecord(t *testing.T) {
	if !*toWrite {
		t.Skip("it writes testdata, with -write")
	}
	dir := *built
	if dir == "" {
		dir = t.TempDir()
		if err := programs.Build(dir, "kube-apiserver", "kube-controller-manager"); err != nil {
			t.Fatal(err)
		}
	}
	k, err := cluster.New(cluster.Config{
		Programs: dir, Dir: t.TempDir(), Ports: &freeport.Ports{}, Controllers: "serviceaccount-controller,resourcequota-controller,root-ca-certificate-publisher-controller",
		APIServerFlags: []string{"--disable-admission-plugins=StorageObjectInUseProtection"},
	})
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
	scripts, order := everything(t)
	record(t, k.Kubeconfig, scripts, order)
}
