package thirdparty

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"portico.dev/e2e/programs"
)

// A Cluster without an inbound address is reached through the agent of a real konnectivity server. Its state tells a lost tunnel from a
// dead API server, which is another front door here.
func TestClusterBehindKonnectivity(t *testing.T) {
	for _, k := range []konnectivity{
		{name: "clusters-http-connect-tcp", mode: "http-connect", tcp: true},
		{name: "clusters-grpc-uds", mode: "grpc"},
	} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			k.prepare(t)
			k.startServer(t)
			k.startAgent(t)
			tunnels := t.TempDir()
			place(t, filepath.Join(tunnels, "edge.yaml"), must[[]byte](t)(os.ReadFile(filepath.Join(k.dir, "egress.yaml"))))
			inside := startFrontDoor(t, "inside-"+k.name)
			front := startFrontDoor(t, "fleet-"+k.name, "--runtime-config", "clusters.portico.dev/v1alpha1=true", "--cluster-tunnels-dir", tunnels)
			front.addCluster(t, inside, "edge")
			front.awaitCluster(t, "True Ready")
			listed := func() error {
				_, err := front.kubectl("", "get", "--raw", "/clusters/edge/api/v1/namespaces")
				return err
			}
			eventually(t, "the cluster answers", listed)
			refused := func(text string) {
				t.Helper()
				if err := listed(); err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("a request without the tunnel: %v, want %q", err, text)
				}
			}

			if err := k.peer.Kill(); err != nil {
				t.Fatal(err)
			}
			front.awaitCluster(t, "False TunnelRefused")
			refused("the tunnel to the edge network refused to connect")
			k.startAgent(t)
			front.awaitCluster(t, "True Ready")
			eventually(t, "the cluster answers again", listed)

			if err := inside.process.Kill(); err != nil {
				t.Fatal(err)
			}
			inside.process = nil
			front.awaitCluster(t, "False NoReadyAPIServer")
			inside.start(t)
			front.awaitCluster(t, "True Ready")

			if err := k.server.Kill(); err != nil {
				t.Fatal(err)
			}
			front.awaitCluster(t, "False TunnelUnreachable")
			refused("the tunnel to the edge network cannot be reached")
		})
	}
}

// hostOfCluster is the host name of the Cluster edge, which does not resolve.
const hostOfCluster = "edge.example.com"

// Commands that use kubelets work through a Cluster, by its path and by its host name.
func TestKwokBehindCluster(t *testing.T) {
	t.Parallel()
	authority := newAuthority(t, "kubelets")
	dir := t.TempDir()
	place(t, filepath.Join(dir, "ca.crt"), authority.PEM())
	inside := startFrontDoor(t, "inside-kwok", "--kubelet-preferred-address-types", "InternalIP", "--kubelet-certificate-authority", filepath.Join(dir, "ca.crt"))
	front := startFrontDoor(t, "fleet-kwok", "--runtime-config", "clusters.portico.dev/v1alpha1=true", "--advertise-name", "*.example.com")
	front.addCluster(t, inside, "")
	front.awaitCluster(t, "True Ready")
	k := newKwok(t, inside, dir, authority, front.ofCluster(t, "by-path", ""), front.ofCluster(t, "by-host", hostOfCluster))
	t.Run("logs", k.Logs)
	t.Run("exec", k.Exec)
	t.Run("attach", k.Attach)
	t.Run("debug", k.Debug)
	t.Run("cp", k.Copy)
	t.Run("port-forward", k.Forward)
	t.Run("proxy", k.Proxy)
}

// ofCluster returns the Cluster edge of d as its clients see it, by its path or by a host name.
func (d *frontDoor) ofCluster(t *testing.T, name, host string) *frontDoor {
	t.Helper()
	seen := &frontDoor{t: t, name: name, dir: t.TempDir(), port: d.port, log: d.log}
	if err := os.Mkdir(seen.file("data"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(binaries, "aggregator"), "kubeconfig", "--data-dir", d.file("data"), "--server", d.config.Host,
		"--user", "root", "--group", "system:masters", "--cluster", "edge", "--file", seen.kubeconfig())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("aggregator kubeconfig: %v, want no error\n%s", err, out)
	}
	if host != "" {
		config := must[*clientcmdapi.Config](t)(clientcmd.LoadFromFile(seen.kubeconfig()))
		for _, c := range config.Clusters {
			c.Server, c.ProxyURL = fmt.Sprintf("https://%s:%d", host, d.port), programs.ProxyTo(t, fmt.Sprintf("127.0.0.1:%d", d.port))
		}
		if err := clientcmd.WriteToFile(*config, seen.kubeconfig()); err != nil {
			t.Fatal(err)
		}
	}
	seen.connect(t)
	return seen
}

// addCluster makes another front door the Cluster edge, with the certificate of its administrator. The tunnel may be empty.
func (d *frontDoor) addCluster(t *testing.T, inside *frontDoor, tunnel string) {
	t.Helper()
	admin := rest.CopyConfig(inside.config)
	if err := rest.LoadTLSFiles(admin); err != nil {
		t.Fatal(err)
	}
	encoded := base64.StdEncoding.EncodeToString
	objects := fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: edge, namespace: default}
data: {tls.crt: %s, tls.key: %s}
---
apiVersion: clusters.portico.dev/v1alpha1
kind: Cluster
metadata: {name: edge}
spec:
  server: {endpoints: ["127.0.0.1:%d"], serverName: localhost, caBundle: %s, tunnel: %q}
  hosts: [%s]
  credentials: {secret: {namespace: default, name: edge}}
  identity: {mode: Impersonate, systemGroups: ["system:masters"]}
`, encoded(admin.CertData), encoded(admin.KeyData), inside.port, encoded(bytes.TrimSpace(admin.CAData)), tunnel, hostOfCluster)
	eventually(t, "the Cluster is created", func() error {
		_, err := d.kubectl(objects, "apply", "-f", "-")
		return err
	})
}

// awaitCluster waits for the status and the reason of the condition Available.
func (d *frontDoor) awaitCluster(t *testing.T, want string) {
	t.Helper()
	eventually(t, "the cluster is "+want, func() error {
		got, err := d.kubectl("", "get", "cluster", "edge", "-o", `jsonpath={range .status.conditions[?(@.type=="Available")]}{.status} {.reason}: {.message}{end}`)
		if err != nil {
			return err
		}
		if !strings.HasPrefix(got, want+":") {
			return errors.New(got)
		}
		return nil
	})
}
