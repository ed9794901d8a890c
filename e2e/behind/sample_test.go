package behind

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"portico.dev/e2e/behind/cluster"
	"portico.dev/e2e/programs"
)

const (
	wardle = "wardle.example.com"
	// sampleRights are the rights in sample-apiserver's manifests, which runs with a service account here.
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

// sampleAt is sample at an address of this machine, or by a name that resolves to it. It also returns a function that restarts
// it.
func sampleAt(t *testing.T, kubeconfig, address string) (port int, restart func()) {
	t.Helper()
	dir, port := t.TempDir(), freePort(t)
	kubectl(t, kubeconfig, sampleRights, "create", "-f", "-")
	for _, args := range [][]string{
		{"serviceaccount", "sample"},
		{"clusterrolebinding", "sample", "--clusterrole=sample", "--serviceaccount=kube-system:sample"},
		{"clusterrolebinding", "sample-review", "--clusterrole=system:auth-delegator", "--serviceaccount=kube-system:sample"},
		{"rolebinding", "sample", "--role=extension-apiserver-authentication-reader", "--serviceaccount=kube-system:sample"},
	} {
		kubectl(t, kubeconfig, "", append([]string{"create", "-n", "kube-system"}, args...)...)
	}
	own := filepath.Join(dir, "kubeconfig")
	accountKubeconfig(t, kubeconfig, own, "kube-system", "sample")
	store, err := cluster.StartEtcd(filepath.Join(dir, "etcd"), filepath.Join(dir, "etcd.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
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
		p, err = programs.Start("sample-apiserver", dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, nil, filepath.Join(binaries, "sample-apiserver"),
			"--etcd-servers", store.URL, "--bind-address", bind, "--secure-port", fmt.Sprint(port), "--cert-dir", dir,
			"--kubeconfig", own, "--authentication-kubeconfig", own, "--authorization-kubeconfig", own)
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(kill)
	restart()
	kubectl(t, kubeconfig, sampleRegistration(port, address), "apply", "-f", "-")
	eventually(t, "sample-apiserver serves", func() error {
		if out := runProgram(t, kubeconfig, sampleObjects, "kubectl", "apply", "-f", "-"); out.code != 0 {
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
