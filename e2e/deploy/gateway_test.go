package deploy

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"portico.dev/e2e/programs"
	"portico.dev/internal/run/freeport"
)

// The gateway of deploy/gateway, with the arguments of its pods and the rights of its service account, adopts and releases. The
// API server is a front door, and reaches it by an external name: no pods run.
func TestDeployedGateway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dev, kubeconfig := programs.Dev(t, binaries, dir)
	env := []string{"KUBECONFIG=" + kubeconfig, "HOME=" + dir}
	kubectl := func(args ...string) string { return output(t, env, "kubectl", args...) }
	kubectl("apply", "-k", "../../deploy/gateway")
	kubectl("-n", "portico-gateway", "delete", "service", "portico-gateway")
	kubectl("-n", "portico-gateway", "create", "service", "externalname", "portico-gateway", "--external-name=localhost")
	account := filepath.Join(dir, "account.kubeconfig")
	if err := os.WriteFile(account, []byte(readFile(t, kubeconfig)), 0o600); err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(kubectl("-n", "portico-gateway", "create", "token", "portico-gateway"))
	kubectl("--kubeconfig", account, "config", "set-credentials", "account", "--token", token)
	kubectl("--kubeconfig", account, "config", "set-context", "--current", "--user=account")

	port := unusedPort(t)
	gateway := startGateway(t, dir, account, port)
	where := "--gateway=portico-gateway/portico-gateway:" + port
	const name = "v1.metrics.k8s.io"
	if err := programs.Poll(gateway.Exited(), func() error {
		_, err := try(env, "kubectl", "get", "--raw", "/apis/metrics.k8s.io/v1/nodes")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	before := kubectl("get", "apiservice", name, "-o", "jsonpath={.spec}")
	if said := output(t, env, "aggregator", "adopt", name, where); said != "apiservice/"+name+" adopted\n" {
		t.Errorf("output of adopt = %q, want adopted", said)
	}
	if said := output(t, env, "aggregator", "adopt", name, where); said != "apiservice/"+name+" unchanged\n" {
		t.Errorf("output of the second adopt = %q, want unchanged", said)
	}
	if nodes := kubectl("get", "--raw", "/apis/metrics.k8s.io/v1/nodes"); !strings.Contains(nodes, "NodeMetrics") {
		t.Errorf("nodes through the gateway = %s, want NodeMetrics", nodes)
	}
	comparePrintedCommands(t, env, "v1beta1.metrics.k8s.io", where)
	if diagnosis := output(t, env, "aggregator", "doctor", "apiservice", name); !strings.HasPrefix(diagnosis, name+" -> gateway portico-gateway/portico-gateway:"+port) {
		t.Errorf("output of doctor = %s, want the hop to the gateway", diagnosis)
	}
	if strings.Contains(gateway.Output(), "forbidden") {
		t.Error("log of the gateway contains \"forbidden\", want none: it lacks a right") // its output is shown
	}
	if code, err := gateway.Stop(os.Interrupt); err != nil || code != 0 {
		t.Errorf("exit status of the gateway = %d, %v; want 0", code, err)
	}
	gateway.Ended = true
	if said := output(t, env, "aggregator", "release", "--all", "-o", "json"); !strings.Contains(said, `"result": "released"`) {
		t.Errorf("output of release = %s, want released", said)
	}
	if after := kubectl("get", "apiservice", name, "-o", "jsonpath={.spec}"); after != before {
		t.Errorf("spec after the release = %s\nwant %s", after, before)
	}
	if err := programs.Poll(dev.Exited(), func() error {
		_, err := try(env, "kubectl", "get", "--raw", "/apis/metrics.k8s.io/v1/nodes")
		return err
	}); err != nil {
		t.Errorf("nodes after the release failed: %v, want no error", err)
	}
	kubectl("delete", "-k", "../../deploy/gateway", "--wait=false", "--ignore-not-found")
	if out, err := try(env, "kubectl", "get", "clusterrole", "portico-gateway-adopted"); err == nil || !strings.Contains(err.Error(), "NotFound") {
		t.Errorf("get clusterrole after the deletion of the gateway = %q, %v, want NotFound", out, err)
	}
}

// comparePrintedCommands adopts an APIService by the command and by the commands that it prints, and compares the objects.
func comparePrintedCommands(t *testing.T, env []string, name, where string) {
	t.Helper()
	state := func() string {
		return output(t, env, "kubectl", "get", "apiservice", name, "-o", "jsonpath={.metadata.annotations}{.spec}") +
			output(t, env, "kubectl", "get", "clusterrole", "portico-gateway-adopted", "-o", "jsonpath={.rules}")
	}
	execute := func(script string) {
		cmd := exec.Command("sh", "-e", "-c", script)
		cmd.Env = append([]string{"PATH=" + binaries + ":" + os.Getenv("PATH"), "KUBECACHEDIR=" + os.DevNull}, env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("printed command %s failed: %v: %s, want no error", script, err, out)
		}
	}
	adopt, release, _ := strings.Cut(output(t, env, "aggregator", "adopt", name, "--dry-run", where), "# release ")
	output(t, env, "aggregator", "adopt", name, where)
	want := state()
	output(t, env, "aggregator", "release", name)
	execute(adopt)
	if got := state(); got != want {
		t.Errorf("state after the printed commands = %s\nwant %s", got, want)
	}
	output(t, env, "kubectl", "apply", "-f", "../../deploy/gateway/rbac.yaml")
	if got := state(); got != want {
		t.Errorf("state after the manifests were applied again = %s\nwant %s", got, want)
	}
	execute("# " + release)
	if spec := output(t, env, "kubectl", "get", "apiservice", name, "-o", "jsonpath={.spec.service.name}"); spec == "portico-gateway" {
		t.Errorf("Service of the APIService %s after the printed release = %s, want another one", name, spec)
	}
}

// startGateway starts the command of the Deployment's pods, with other paths and addresses.
func startGateway(t *testing.T, dir, kubeconfig, port string) *programs.Process {
	t.Helper()
	deployment := objects(t, "kubectl", "kustomize", "../../deploy/gateway")["Deployment/portico-gateway/portico-gateway"]
	containers, _, err := unstructured.NestedSlice(deployment, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		t.Fatalf("containers = %v, %v; want one", containers, err)
	}
	args, _, err := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	if err != nil {
		t.Fatal(err)
	}
	here := strings.NewReplacer("--secure-port=8443", "--secure-port="+port, "=:9090", "=127.0.0.1:0", "--shutdown-delay-duration=10s", "--shutdown-delay-duration=0s")
	for i := range args {
		args[i] = here.Replace(args[i])
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "POD_NAMESPACE=portico-gateway"}
	p, err := startProcess("gateway", dir, env, "aggregator", append(args, "--kubeconfig="+kubeconfig, "--service-port="+port, "--bind-address=127.0.0.1")...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Finish(t)
		p.Show(t)
	})
	if err := programs.Poll(p.Exited(), func() error {
		if !strings.Contains(p.Output(), "listening on") {
			return errors.New("it does not listen")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return p
}

// ports are for servers whose ports must be fixed before they start.
var ports freeport.Ports

// unusedPort returns a port without a listener.
func unusedPort(t *testing.T) string {
	t.Helper()
	port, err := ports.Free()
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(port)
}
