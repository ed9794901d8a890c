//go:build incumbent

package behind

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"portico.dev/e2e/behind/cluster"
	"portico.dev/e2e/programs"
)

const (
	wardle = "wardle.example.com"
	// sampleRights are what its own manifests grant sample-apiserver, which runs as the user of its kubeconfig here.
	sampleRights = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: sample}
rules:
- {apiGroups: [""], resources: [namespaces], verbs: [get, list, watch]}
- {apiGroups: [admissionregistration.k8s.io], resources: ["*"], verbs: [get, list, watch]}
- {apiGroups: [flowcontrol.apiserver.k8s.io], resources: [prioritylevelconfigurations, flowschemas], verbs: [get, list, watch]}
`
	sampleObjects = `apiVersion: wardle.example.com/v1alpha1
kind: Flunder
metadata: {name: one, namespace: default, labels: {a: b}}
---
apiVersion: wardle.example.com/v1alpha1
kind: Flunder
metadata: {name: two, namespace: default}
---
apiVersion: wardle.example.com/v1alpha1
kind: Fischer
metadata: {name: three}
`
)

// An examination is the same whoever stands before the extension server: the card of sample-apiserver that was recorded
// behind our front door is the one that comes of it behind kube-apiserver.
func TestConformance(t *testing.T) {
	k := control(t, false)
	port := sample(t, k)
	examine := func(args ...string) outcome {
		return runProgram(t, k.Kubeconfig, "", "aggregator", append([]string{"conformance"}, args...)...)
	}
	out := examine("url", fmt.Sprintf("https://127.0.0.1:%d", port), "--insecure-skip-tls-verify", "--kubeconfig", k.Kubeconfig, "--write", "--rotate",
		"--client-certificate", k.Keys().Path("front-proxy-client.crt"), "--client-key", k.Keys().Path("front-proxy-client.key"))
	recorded, err := os.ReadFile(filepath.Join("..", "..", "docs", "conformance", "sample-apiserver-v0.37.2.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := marks(out.stdout), marks(string(recorded)); got != want || got == "" {
		t.Errorf("the card is\n%s\nand was recorded as\n%s", out, recorded)
	}
	for _, name := range []string{"v1alpha1." + wardle, "v1beta1." + wardle} {
		out := examine("apiservice", name, "--write")
		t.Log(out)
		m := score.FindStringSubmatch(out.stdout)
		if m == nil {
			t.Errorf("%s: %s", name, out)
			continue
		}
		book.scored("sample-apiserver v0.37.2", name, m[1]+"/"+m[2])
	}
}

// sample starts sample-apiserver with its defaults behind a kube-apiserver, and returns where it listens.
func sample(t *testing.T, k *cluster.Cluster) int {
	t.Helper()
	port, _ := sampleAt(t, k, "localhost")
	return port
}

// sampleAt is sample on an address of this machine, or by a name that leads to it, and returns what starts it anew too.
func sampleAt(t *testing.T, k *cluster.Cluster, address string) (port int, restart func()) {
	t.Helper()
	dir, port := t.TempDir(), freePort(t)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := k.WriteKubeconfig(kubeconfig, "sample"); err != nil {
		t.Fatal(err)
	}
	kubectl(t, k.Kubeconfig, sampleRights, "create", "-f", "-")
	for role, args := range map[string][]string{
		"sample": {"clusterrolebinding", "sample", "--clusterrole=sample"},
		"review": {"clusterrolebinding", "sample-review", "--clusterrole=system:auth-delegator"},
		"reader": {"rolebinding", "-n", "kube-system", "sample", "--role=extension-apiserver-authentication-reader"},
	} {
		t.Log(role, kubectl(t, k.Kubeconfig, "", append([]string{"create", "--user=sample"}, args...)...))
	}
	bind := "127.0.0.1"
	if net.ParseIP(address) != nil {
		bind = address
	}
	var p *programs.Process
	kill := func() {
		// Asked to end, it waits for a minute while controllers watch its objects.
		if p != nil {
			if err := p.Kill(); err != nil {
				t.Error(err)
			}
			p.Show(t)
		}
	}
	restart = func() {
		kill()
		var err error
		p, err = programs.Start("sample-apiserver", dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, nil, filepath.Join(binaries, "sample-apiserver"),
			"--etcd-servers", k.Etcd(), "--bind-address", bind, "--secure-port", fmt.Sprint(port), "--cert-dir", dir,
			"--kubeconfig", kubeconfig, "--authentication-kubeconfig", kubeconfig, "--authorization-kubeconfig", kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(kill)
	restart()
	kubectl(t, k.Kubeconfig, sampleRegistration(port, address), "apply", "-f", "-")
	eventually(t, "sample-apiserver serves", func() error {
		if out := runProgram(t, k.Kubeconfig, sampleObjects, "kubectl", "apply", "-f", "-"); out.code != 0 {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	return port, restart
}

// sampleRegistration verifies no certificate, as its own manifests do not.
func sampleRegistration(port int, address string) string {
	r := registration{namespace: "default", service: "sample", address: address, port: int32(port)}
	text := r.serviceYAML()
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		text += fmt.Sprintf(`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: %[1]s.wardle.example.com}
spec:
  group: wardle.example.com
  version: %[1]s
  groupPriorityMinimum: 1000
  versionPriority: 15
  service: {namespace: default, name: sample, port: %[2]d}
  insecureSkipTLSVerify: true
---`, version, r.servicePort())
	}
	return text
}

// marks is what a card gives for each check.
func marks(card string) string {
	var b strings.Builder
	for _, m := range markLine.FindAllStringSubmatch(card, -1) {
		b.WriteString(m[1] + " " + m[2] + "\n")
	}
	return b.String()
}

var markLine = regexp.MustCompile(`(?m)^  (pass|warn|FAIL|-)\s+([a-z0-9-]+) `)
