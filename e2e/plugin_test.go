package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"portico.dev/e2e/programs"
)

// kubectl finds the plugin by its name, and completes it. The plugin connects to the cluster of the kubeconfig.
func TestKubectlPlugin(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	dir := t.TempDir()
	dev, kubeconfig := programs.Dev(t, binaries, dir)
	completion, err := filepath.Abs("../deploy/kubectl")
	if err != nil {
		t.Fatal(err)
	}
	kubectl := programs.Kubectl(binaries, dir, kubeconfig, completion)
	const name = "v1.metrics.k8s.io"
	if err := programs.Poll(dev.Exited(), func() error {
		_, err := kubectl("portico", "doctor", "apiservice", name)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	context, err := kubectl("config", "current-context")
	if err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"a list of nodes is of kind NodeMetricsList":                            {"portico", "doctor", "apiservice", name},
		"kube-system/portico-extserver:":                                        {"portico", "route", "/apis/metrics.k8s.io/v1/nodes"},
		" not applicable\n":                                                     {"portico", "conformance", "apiservice", name}, // it ends with 0: no check failed
		"yes: system:serviceaccount:kube-system:deployment-controller get pods": {"portico", "why", "system:serviceaccount:kube-system:deployment-controller", "get", "pods"},
		"doctor\tFind":    {"__complete", "portico", "do"},
		"1 passed":        {"portico", "drill", "run", "refuse", "--context", strings.TrimSpace(context)},
		"kubectl-portico": {"plugin", "list"},
	} {
		if out, err := kubectl(args...); err != nil || !strings.Contains(out, want) {
			t.Errorf("kubectl %q = %v: %s\nwant %q in the output", args, err, out, want)
		}
	}
	out, err := kubectl("portico", "doctor", "-o", "yaml")
	var reports struct {
		APIServices []struct {
			APIService string `json:"apiService"`
		} `json:"apiServices"`
	}
	if err != nil || yaml.Unmarshal([]byte(out), &reports) != nil || len(reports.APIServices) < 2 || reports.APIServices[0].APIService != name {
		t.Errorf("kubectl portico doctor -o yaml = %v: %s; want YAML with two reports", err, out)
	}
	if out, err := kubectl("portico", "doctor", name); err == nil || !strings.Contains(out, "run `kubectl portico doctor apiservice "+name+"`") {
		t.Errorf("kubectl portico doctor with a name = %v: %s; want an error with the intended command", err, out)
	}
	if out, err := kubectl("portico", "adopt", name); err == nil || !strings.Contains(out, "is a gateway running?") {
		t.Errorf("kubectl portico adopt without a gateway = %v: %s; want an error that asks for one", err, out)
	}
}

// The plugin is downloaded to machines of operators with a broken cluster. It contains no API server.
func TestPluginHasNoServer(t *testing.T) {
	t.Parallel()
	list := exec.Command("go", "list", "-deps", "./cmd/kubectl-portico")
	list.Dir = ".."
	deps, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range []string{"k8s.io/apiserver/pkg/server", "k8s.io/client-go/kubernetes/scheme", "go.etcd.io/etcd/client/v3", "portico.dev/internal/aggregator"} {
		if strings.Contains(string(deps), pkg+"\n") {
			t.Errorf("kubectl-portico imports %s, want no such import", pkg)
		}
	}
}
