//go:build incumbent

package behind

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"portico.dev/e2e/behind/cluster"
)

var update = flag.Bool("update", false, "write result.yaml")

func init() {
	needed = append(needed, "extserver", "metrics-server", "prometheus-adapter", "kube-apiserver", "kube-controller-manager", "installer", "kwok")
	afterwards = func(code int) int {
		if *update && code == 0 {
			if err := book.write(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
		return code
	}
}

// control starts a control plane for one test.
func control(t *testing.T, routing bool) *cluster.Cluster {
	t.Helper()
	k, err := cluster.New(cluster.Config{Programs: binaries, Dir: t.TempDir(), AggregatorRouting: routing, Ports: &ports})
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
	version, err := k.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	book.version(version)
	return k
}

// kubeAPIServer starts one, with its controllers, for servers that are put behind it.
func kubeAPIServer(t *testing.T) (*cluster.Cluster, *apiServer) {
	t.Helper()
	k := control(t, true) // no kube-proxy runs: it dials endpoints directly
	return k, &apiServer{Kubeconfig: k.Kubeconfig, stop: k.StopAPIServer, start: k.StartAPIServer}
}
