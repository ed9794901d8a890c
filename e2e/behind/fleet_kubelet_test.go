//go:build incumbent

package behind

import (
	"testing"

	"portico.dev/e2e/kubelet"
	"portico.dev/internal/pki"
)

// kubelets runs the commands that use kubelets in both clusters, each with kwok's kubelet. East is in mode Impersonate, and west in mode
// FrontProxy.
func (f *fleet) kubelets(t *testing.T, admin string) {
	for name, mode := range map[string]string{"east": "Impersonate", "west": "FrontProxy"} {
		if got := kubectl(t, admin, "", "get", "cluster", name, "-o", "jsonpath={.spec.identity.mode}"); got != mode {
			t.Fatalf("mode of cluster %s = %s, want %s", name, got, mode)
		}
		authority, err := pki.NewAuthority("kubelets")
		if err != nil {
			t.Fatal(err)
		}
		node := kubelet.Start(t, kubelet.Config{Programs: binaries, Dir: t.TempDir(), Kubeconfig: f.clusters[name].Kubeconfig, Authority: authority, Ports: &ports})
		var clients []*kubelet.Client
		for way, kubeconfig := range f.ways(t, name) {
			client := &kubelet.Client{Programs: binaries, Dir: t.TempDir(), Kubeconfig: kubeconfig}
			clients = append(clients, client)
			node.SetClients(client)
			t.Run(mode+", "+way, func(t *testing.T) {
				t.Run("logs", node.Logs)
				t.Run("exec", node.Exec)
				t.Run("attach", node.Attach)
				t.Run("cp", node.Copy)
				t.Run("port-forward", node.Forward)
			})
		}
		node.SetClients(clients...)
		t.Run(mode+", proxy", node.Proxy)
	}
}
