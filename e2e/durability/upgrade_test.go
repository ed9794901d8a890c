package durability

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"portico.dev/e2e/programs"
)

var before = flag.String("before", "", "commit of the release before, whose aggregator is built and upgraded; auto: the newest tag before HEAD, or without one the newest merge, or without either HEAD^; default: these tests are skipped")

// programBefore is the aggregator of the release before. It is built once.
func programBefore(t *testing.T) string {
	t.Helper()
	if *before == "" {
		t.Skip("-before names no commit")
	}
	program, err := buildBefore()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

var buildBefore = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	root, commit := strings.TrimSpace(string(out)), *before
	if commit == "auto" {
		if commit, err = programs.CommitBefore(root); err != nil {
			return "", fmt.Errorf("find the release before: %w", err)
		}
	}
	program := filepath.Join(built, "aggregator-before")
	if err := programs.BuildAt(root, commit, program, "./cmd/aggregator"); err != nil {
		return "", fmt.Errorf("build the release before: %w", err)
	}
	return program, nil
})

// Two replicas over an external etcd are upgraded one after the other, rolled back, and upgraded again, behind a load balancer.
// For a time both releases serve together. No request fails, and watches and informers miss no event.
func TestUpgradeAndRollbackOfReplicas(t *testing.T) {
	old := programBefore(t)
	c := newCluster(t, 1)
	var fronts []*frontDoor
	for range 2 {
		var first *frontDoor
		if len(fronts) > 0 {
			first = fronts[0]
		}
		d := newPortico(t, c.endpoints(), first)
		d.program = old
		d.start()
		fronts = append(fronts, d)
	}
	w := newTraffic(t, fronts)
	w.start()
	for _, program := range []string{*aggregator, old, *aggregator} {
		for _, d := range fronts {
			d.program = program
			w.restart(d)
		}
	}
	w.stop()
	w.report("upgrade, rollback and upgrade", noneMayFail)
}

// A front door with an embedded etcd is upgraded, rolled back and upgraded again on its data directory, behind a socket that a
// service manager holds. Clients wait in between. No request fails, and the data of both releases is there.
func TestUpgradeAndRollbackOfADataDirectory(t *testing.T) {
	old := programBefore(t)
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	d := &behindSocket{t: t, dir: t.TempDir(), socket: socket.(*net.TCPListener), program: old}
	d.start()
	defer d.stop()
	kubectl := newKubectl(t, filepath.Join(d.dir, "admin.kubeconfig"))
	clients := newSocketClients(t, d)
	for i, program := range []string{*aggregator, old, *aggregator} {
		kubectl.apply(fmt.Sprintf("written-%d", i))
		served := clients.served.Load()
		d.stop()
		d.program = program
		d.start()
		clients.awaitMore(served)
		for n := range i + 1 {
			kubectl.has(fmt.Sprintf("written-%d", n))
		}
	}
	clients.stop()
	t.Logf("%d requests, the slowest took %s", clients.served.Load(), time.Duration(clients.slowest.Load()).Round(time.Millisecond))
}

// Each release restores the backups of both releases. kubectl then reads the data with the old credentials, and writes.
func TestBackupsOfOtherReleases(t *testing.T) {
	old := programBefore(t)
	for name, c := range map[string]struct{ makes, restores string }{
		"of the release before":         {old, *aggregator},
		"of this one by the one before": {*aggregator, old},
		"of this one":                   {*aggregator, *aggregator},
	} {
		t.Run(name, func(t *testing.T) {
			d := newFrontDoor(t)
			d.program = c.makes
			d.start()
			kubectl := newKubectl(t, filepath.Join(d.dir, "data", "admin.kubeconfig"))
			kubectl.apply("early")
			if err := os.WriteFile(filepath.Join(d.dir, "passphrase"), []byte("correct horse\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			d.mustCommand("backup", "a.backup", "--include-keys", "--passphrase-file", "passphrase")
			kubectl.apply("later")
			d.stop()
			// The kubeconfig is the one of before; the keys are in the backup.
			admin, err := os.ReadFile(filepath.Join(d.dir, "data", "admin.kubeconfig"))
			if err == nil {
				err = errors.Join(os.Rename(filepath.Join(d.dir, "data"), filepath.Join(d.dir, "data.lost")), os.WriteFile(filepath.Join(d.dir, "kept"), admin, 0o600))
			}
			if err != nil {
				t.Fatal(err)
			}
			kubectl.kubeconfig = filepath.Join(d.dir, "kept")
			d.program = c.restores
			d.mustCommand("restore", "a.backup", "--data-dir", "data", "--passphrase-file", "passphrase")
			d.start()
			kubectl.has("early")
			if out, err := kubectl.run("get", "widget", "later"); err == nil || !strings.Contains(out, "NotFound") {
				t.Errorf("Get of an object newer than the backup = %v, %s; want NotFound", err, out)
			}
			kubectl.apply("again")
			kubectl.has("again")
		})
	}
}

// kubectlOf is a real kubectl with a kubeconfig.
type kubectlOf struct {
	t          *testing.T
	dir        string
	kubeconfig string
}

func newKubectl(t *testing.T, kubeconfig string) *kubectlOf {
	t.Helper()
	if err := buildKubectl(); err != nil {
		t.Fatal(err)
	}
	return &kubectlOf{t, t.TempDir(), kubeconfig}
}

// buildKubectl compiles kubectl once.
var buildKubectl = sync.OnceValue(func() error { return programs.Build(built, "kubectl") })

func (k *kubectlOf) run(args ...string) (string, error) {
	return programs.Kubectl(built, k.dir, k.kubeconfig)(args...)
}

// objects are of a local group and of a custom resource. The latter has a definition, a watch cache and a conversion.
const objects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: NAME, namespace: default}
data: {written: NAME}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NAME}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: shop.example.com/v1
kind: Widget
metadata: {name: NAME}
spec: {size: 3}
`

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.shop.example.com}
spec:
  group: shop.example.com
  names: {kind: Widget, plural: widgets, singular: widget}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
`

func (k *kubectlOf) apply(name string) {
	k.t.Helper()
	for _, text := range []string{definition, strings.ReplaceAll(objects, "NAME", name)} {
		file := filepath.Join(k.dir, "objects.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			k.t.Fatal(err)
		}
		if out, err := k.run("apply", "--server-side", "-f", file); err != nil {
			k.t.Fatalf("kubectl apply failed: %v: %s, want no error", err, out)
		}
		if out, err := k.run("wait", "--for=condition=Established", "--timeout=1m", "crd/widgets.shop.example.com"); err != nil {
			k.t.Fatalf("kubectl wait failed: %v: %s, want no error", err, out)
		}
	}
}

func (k *kubectlOf) has(name string) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for { // custom resources are served a moment after the start
		out, err := k.run("get", "configmap/"+name, "clusterrole/"+name, "widget/"+name, "-n", "default", "-o", "name")
		if want := "configmap/" + name; err == nil && strings.Contains(out, want) && strings.Contains(out, "widget.shop.example.com/"+name) {
			return
		}
		if !pause(ctx, lookAgain) {
			k.t.Errorf("kubectl get of %s = %v: %s; want all objects", name, err, out)
			return
		}
	}
}
