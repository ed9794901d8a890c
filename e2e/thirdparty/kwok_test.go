package thirdparty

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/e2e/kubelet"
	"portico.dev/internal/pki"
)

// Kubectl reaches pods and nodes through the front door, which reaches kwok's kubelet: with SPDY to kwok, and with websockets
// and SPDY from kubectl. With two front doors over one etcd, each kubectl uses the next one.
func TestKwok(t *testing.T) {
	t.Parallel()
	t.Run("one front door", func(t *testing.T) { throughFrontDoors(t, "front-kwok") })
	t.Run("two front doors", func(t *testing.T) { throughFrontDoors(t, "front-kwok-a", "front-kwok-b") })
}

func throughFrontDoors(t *testing.T, names ...string) {
	t.Parallel()
	authority := newAuthority(t, "kubelets")
	dir := t.TempDir()
	place(t, filepath.Join(dir, "ca.crt"), authority.PEM())
	flags := []string{"--kubelet-preferred-address-types", "InternalIP", "--kubelet-certificate-authority", filepath.Join(dir, "ca.crt"), "--audit-log-path", "audit.log"}
	if len(names) > 1 {
		flags = append(flags, "--etcd-servers", startEtcd(t), "--peer-advertise-ip", "127.0.0.1")
	}
	d := startFrontDoor(t, names[0], flags...)
	k := &kwok{fronts: []*frontDoor{d}}
	for _, name := range names[1:] {
		k.fronts = append(k.fronts, d.beside(t, name))
	}
	k.Node = newKwok(t, d, dir, authority, k.fronts...)

	t.Run("logs", k.Logs)
	t.Run("exec", k.Exec)
	t.Run("attach", k.Attach)
	t.Run("debug", k.Debug)
	t.Run("cp", k.Copy)
	t.Run("port-forward", k.Forward)
	t.Run("proxy", k.Proxy)
	t.Run("audit", k.audited)
	t.Run("no kubelet", k.gone)
}

// kwok is a kubelet behind front doors.
type kwok struct {
	*kubelet.Node
	fronts []*frontDoor
}

// newKwok starts kwok's kubelet behind d. kubectl uses the front doors in turn.
func newKwok(t *testing.T, d *frontDoor, dir string, authority *pki.Authority, fronts ...*frontDoor) *kubelet.Node {
	t.Helper()
	var clients []*kubelet.Client
	for _, front := range fronts {
		clients = append(clients, front.client())
	}
	return kubelet.Start(t, kubelet.Config{
		Programs: binaries, Dir: dir, Kubeconfig: d.kubeconfig(), Clients: clients, Authority: authority, Ports: &ports, Log: openLog(t, "kwok-of-"+d.name),
	})
}

// audited checks the entries of the operations in the audit log.
func (k *kwok) audited(t *testing.T) {
	for _, wanted := range []string{
		`/api/v1/namespaces/default/pods/a/log`, `"subresource":"exec"`, `"subresource":"portforward"`, `"subresource":"attach"`, `"subresource":"ephemeralcontainers"`,
	} {
		eventually(t, "the audit log has "+wanted, func() error {
			for _, d := range k.fronts {
				log, err := os.ReadFile(d.file("audit.log"))
				if err != nil {
					return err
				}
				if bytes.Contains(log, []byte(wanted)) {
					return nil
				}
			}
			return errors.New("it has not")
		})
	}
}

// gone checks the error messages when a kubelet does not respond.
func (k *kwok) gone(t *testing.T) {
	k.Stop(t)
	d := k.fronts[len(k.fronts)-1]
	where := fmt.Sprintf("the kubelet of node n1 at %s (InternalIP): it refused the connection; it has not answered since 20", k.Address())
	for _, args := range [][]string{{"logs", "a"}, {"exec", "a", "--", "id"}, {"attach", "a", "-c", "c"}} {
		if _, err := d.kubectl("", args...); err == nil || !strings.Contains(err.Error(), where) {
			t.Errorf("kubectl %q: %v, want %q", args, err, where)
		}
	}
	ctx, core := t.Context(), d.typed.CoreV1()
	if _, err := core.Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "empty"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, node := range map[string]string{"b": "empty", "c": "missing", "d": ""} {
		_, err := core.Pods("default").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	for wanted, args := range map[string][]string{
		"node empty has no kubelet that could be asked": {"logs", "b"},
		`nodes "missing" not found`:                     {"logs", "c"},
		"pod d does not have a host assigned":           {"exec", "d", "--", "id"},
	} {
		if _, err := d.kubectl("", args...); err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("kubectl %q: %v, want %q", args, err, wanted)
		}
	}
	if out, err := d.kubectl("", "logs", "d"); err != nil || !strings.Contains(out, "it is assigned to no node") {
		t.Errorf("logs of a pod without a node = %q, %v; want the message that it has none", out, err)
	}
}
