package durability

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const encryptSecrets = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - %s
`

// The real program: an invalid file stops the start with a message, and a valid file takes effect.
func TestEncryptionOfTheRealProgram(t *testing.T) {
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	write := func(provider string, mode os.FileMode) {
		if err := os.WriteFile(file, fmt.Appendf(nil, encryptSecrets, provider), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	const good = "aesgcm: {keys: [{name: one, secret: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=}]}"
	d := newFrontDoor(t, "--encryption-provider-config", file, "--encryption-provider-config-automatic-reload", "--etcd-unix-socket", "etcd.sock")
	for name, c := range map[string]struct {
		provider string
		mode     os.FileMode
		says     string
	}{
		"a key of a bad size":    {"aesgcm: {keys: [{name: one, secret: AAAA}]}", 0o600, file},
		"a file open to anybody": {good, 0o644, "--encryption-provider-config"},
	} {
		write(c.provider, c.mode)
		d.begin()
		<-d.process.Exited()
		d.process.Ended = true
		if out := d.process.Output(); !strings.Contains(out, c.says) || strings.Contains(out, "AAAA") {
			t.Errorf("%s: output = %s, want the fault and no key", name, out)
		}
	}
	write(good, 0o600)
	d.start()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"k": "canary-4711"}}
	if _, err := d.client().CoreV1().Secrets("default").Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	etcd := etcdClient(t, "unix://"+filepath.Join(d.dir, "etcd.sock"))
	stored, err := etcd.Get(ctx, "/registry/secrets/default/s")
	if err != nil || len(stored.Kvs) != 1 || !strings.HasPrefix(string(stored.Kvs[0].Value), "k8s:enc:aesgcm:v1:one:") {
		t.Errorf("stored Secret = %v, %v; want it encrypted by the key one", stored, err)
	}
	if code, body, err := d.get(ctx, "/readyz?verbose"); err != nil || code != http.StatusOK || !strings.Contains(body, "[+]kms-providers ok") {
		t.Errorf("GET /readyz = %d %v %s, want 200 with kms-providers", code, err, body)
	}
	write("{", 0o600)
	d.unready("encryption-provider-config")
	if _, err := d.client().CoreV1().Secrets("default").Get(ctx, "s", metav1.GetOptions{}); err != nil {
		t.Errorf("Get of a Secret while the file is invalid = %v, want no error with the last valid file", err)
	}
}
