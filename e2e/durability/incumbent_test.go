//go:build incumbent

package durability

import (
	"flag"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	controlplane "portico.dev/e2e/behind/cluster"
	"portico.dev/e2e/programs"
)

var kubeAPIServers = flag.String("kube-apiservers", "", "directory with a kube-apiserver; default built, which takes minutes the first time")

// The effect of the same disruptions on clients of three kube-apiservers. The test has no limits. docs/replicas.md has both
// results.
func TestDisruptionsOfKubeAPIServer(t *testing.T) {
	disrupt(t, newReplicatedCluster(t, newKubeAPIServers(t)), true)
}

func newKubeAPIServers(t *testing.T) newReplica {
	dir := *kubeAPIServers
	if dir == "" {
		dir = t.TempDir()
		if err := programs.Build(dir, "kube-apiserver"); err != nil {
			t.Fatal(err)
		}
	}
	keys, err := controlplane.New(controlplane.Config{Dir: t.TempDir(), Ports: &ports, APIServerFlags: []string{
		"--shutdown-delay-duration=" + shutdownDelay.String(), "--request-timeout=" + requestTimeout.String(), "--enable-priority-and-fairness=false",
	}})
	if err != nil {
		t.Fatal(err)
	}
	return func(t testing.TB, etcd []string, _ *frontDoor) *frontDoor {
		d := &frontDoor{t: t, dir: t.TempDir(), port: freePort(t), program: filepath.Join(dir, "kube-apiserver")}
		port, err := strconv.Atoi(d.port)
		if err != nil {
			t.Fatal(err)
		}
		d.args = keys.APIServerFlags(strings.Join(etcd, ","), port)
		if d.admin, err = keys.As("admin", "system:masters"); err != nil {
			t.Fatal(err)
		}
		d.admin.Host, d.admin.Timeout = "https://"+d.address(), 0
		d.finishWithTest()
		return d
	}
}
