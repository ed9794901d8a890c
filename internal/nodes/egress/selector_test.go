package egress

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portico.dev/internal/transport"
)

func TestSelectorReturnsConfiguredTunnels(t *testing.T) {
	dir := t.TempDir()
	uds := "proxyProtocol: GRPC\n    transport: {uds: {udsName: /run/konnectivity}}"
	for name, wanted := range map[string][3]bool{"cluster": {true}, "Cluster": {true}, "master": {false, true}, "controlplane": {false, true}, "etcd": {false, false, true}} {
		s := load(t, dir, name, uds, nil)
		for i, tunnel := range []*transport.Tunnel{s.Cluster(), s.ControlPlane(), s.Etcd()} {
			if (tunnel != nil) != wanted[i] {
				t.Errorf("%s: tunnel %d exists: %t, want %t", name, i, tunnel != nil, wanted[i])
			}
		}
	}
	if s := load(t, dir, "cluster", "proxyProtocol: Direct", nil); s.Cluster() != nil {
		t.Error("Cluster with proxyProtocol Direct = a tunnel, want nil")
	}
	var none *Selector
	if none.Cluster() != nil || none.ControlPlane() != nil || none.Etcd() != nil || none.Etcd().Dialer() != nil || none.Etcd().NetDialer() != nil {
		t.Error("nil Selector returns a tunnel, want nil")
	}
}

func TestTunnelHasItsName(t *testing.T) {
	dir := t.TempDir()
	load(t, dir, "cluster", "proxyProtocol: GRPC\n    transport: {uds: {udsName: "+dir+"/absent}}", nil)
	s, err := LoadTunnel(filepath.Join(dir, "egress.yaml"), "edge", nil)
	if err != nil {
		t.Fatal(err)
	}
	running(t, s)
	if got := s.Cluster().Network; got != "edge" {
		t.Errorf("network = %q, want edge", got)
	}
	if _, err := s.Cluster().Dial(t.Context(), "192.0.2.1:443"); err == nil || !strings.Contains(err.Error(), "the tunnel to the edge network") {
		t.Errorf("Dial error = %v, want the name of the tunnel", err)
	}
	load(t, dir, "etcd", "proxyProtocol: GRPC\n    transport: {uds: {udsName: "+dir+"/absent}}", nil)
	if _, err := LoadTunnel(filepath.Join(dir, "egress.yaml"), "edge", nil); err == nil || !strings.Contains(err.Error(), `the tunnel of the egress selection "cluster" is missing`) {
		t.Errorf("LoadTunnel of a file without a tunnel to the cluster: error = %v, want one that names it", err)
	}
}

func TestInvalidConfigurationFilesAreRejected(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string]string{"open.key": "", "none.crt": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "open.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	const head = "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n- name: cluster\n  connection:\n    "
	for wanted, text := range map[string]string{
		"strict decoding error: unknown field":           head + "proxyProtocol: Direct\n    server: x\n",
		"must be present for UDS connections":            head + "proxyProtocol: GRPC\n    transport: {uds: {}}\n",
		"UDS must be set with GRPC":                      head + "proxyProtocol: GRPC\n    transport: {tcp: {url: \"http://a:1\"}}\n",
		"TLSConfig must be present when using HTTPS":     head + "proxyProtocol: HTTPConnect\n    transport: {tcp: {url: \"https://a:1\"}}\n",
		"supported connection protocols are http:// and": head + "proxyProtocol: HTTPConnect\n    transport: {tcp: {url: \"a:1\"}}\n",
		"is more or less than a scheme, a host and a":    head + "proxyProtocol: HTTPConnect\n    transport: {tcp: {url: \"http://me:secret@a:1\"}}\n",
		"can be read by every user of this machine":      head + "proxyProtocol: HTTPConnect\n    transport: {tcp: {url: \"https://a:1\", tlsConfig: {clientCert: " + dir + "/none.crt, clientKey: " + dir + "/open.key}}}\n",
		"supported values: \"cluster\"":                  strings.Replace(head, "name: cluster", "name: nodes", 1) + "proxyProtocol: Direct\n",
		"no kind \"AuthenticationConfiguration\"":        "apiVersion: apiserver.k8s.io/v1beta1\nkind: AuthenticationConfiguration\n",
	} {
		file := filepath.Join(dir, "egress.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(file, nil); err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("Load error = %v, want %q", err, wanted)
		}
	}
	if _, err := Load(filepath.Join(dir, "absent"), nil); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("Load of a missing file: error = %v, want an error that contains \"no such file\"", err)
	}
}
