package coreapi

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"portico.dev/internal/coreapi/encryption"
	"portico.dev/internal/store"
)

// key returns a key for AES-256 and secretbox.
func key(name string) string {
	secret := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(name[:1]), 32))
	return fmt.Sprintf("{name: %s, secret: %s}", name, secret)
}

// configuration encrypts resources with the providers. The first provider writes.
func configuration(resources string, providers ...string) string {
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [" + resources + "]\n  providers:\n"
	for _, p := range providers {
		text += "  - " + p + "\n"
	}
	return text
}

// encrypted is a server whose configuration file a test can change.
type encrypted struct {
	*testServer
	file   string
	by     *encryption.Encryption
	client kubernetes.Interface
}

func startEncrypted(t *testing.T, dir, text string) *encrypted {
	t.Helper()
	e := &encrypted{file: filepath.Join(t.TempDir(), "encryption.yaml")}
	e.write(t, text)
	e.by = encryption.New(encryption.Config{File: e.file, Reload: true, Replica: t.Name(), Logger: zaptest.NewLogger(t)})
	runUntilEnd(t, "encryption", e.by.Run, e.by.Ready())
	e.testServer = startIn(t, dir, func(c *Config) { c.Storage.Encryption = e.by })
	e.client = e.typed(t, admin)
	return e
}

// write replaces the file atomically.
func (e *encrypted) write(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(e.file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(e.file+".new", e.file); err != nil {
		t.Fatal(err)
	}
}

func (e *encrypted) secret(t *testing.T, name, value string) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"k": value}}
	if _, err := e.client.CoreV1().Secrets("work").Create(within(t), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// raw returns the value of a secret in etcd.
func (e *encrypted) raw(t *testing.T, name string) string {
	t.Helper()
	got, err := e.store.Client().KV.Get(within(t), "/registry/secrets/work/"+name)
	if err != nil || len(got.Kvs) != 1 {
		t.Fatalf("GET of the key of the secret %q = %v, %v, want one value", name, got, err)
	}
	return string(got.Kvs[0].Value)
}

func (e *encrypted) get(t *testing.T, name string) (string, error) {
	secret, err := e.client.CoreV1().Secrets("work").Get(within(t), name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return string(secret.Data["k"]), nil
}

const canary = "canary-4711"

func TestE5SecretsAreEncryptedInEtcd(t *testing.T) {
	t.Parallel()
	kms := newKeyService(t)
	kms.start()
	for _, c := range []struct{ name, provider, prefix string }{
		{"AES-GCM", "aesgcm: {keys: [" + key("one") + "]}", "k8s:enc:aesgcm:v1:one:"},
		{"AES-CBC", "aescbc: {keys: [" + key("one") + "]}", "k8s:enc:aescbc:v1:one:"},
		{"secretbox", "secretbox: {keys: [" + key("one") + "]}", "k8s:enc:secretbox:v1:one:"},
		{"KMS v2", kms.provider("10s"), "k8s:enc:kms:v2:keys:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := startEncrypted(t, t.TempDir(), configuration("'*.*'", c.provider, "identity: {}"))
			namespace(t, e.client, "work")
			e.secret(t, "a", canary)
			if value, err := e.get(t, "a"); err != nil || value != canary {
				t.Errorf("GET of the secret = %q, %v, want %q", value, err, canary)
			}
			if raw := e.raw(t, "a"); !strings.HasPrefix(raw, c.prefix) {
				t.Errorf("stored value = %.60q, want the prefix %q", raw, c.prefix)
			}
			all, err := e.store.Client().KV.Get(within(t), "/registry/", clientv3.WithPrefix())
			if err != nil || len(all.Kvs) == 0 {
				t.Fatal(err)
			}
			for _, kv := range all.Kvs {
				if bytes.Contains(kv.Value, []byte(canary)) || !bytes.HasPrefix(kv.Value, []byte("k8s:enc:")) {
					t.Errorf("%s is stored as %.60q, want an encrypted value without the secret", kv.Key, kv.Value)
				}
			}
		})
	}
}

// The wildcard of a group matches only that group. Definitions and custom resources are encrypted in the same way.
func TestE5CustomResourcesAreEncrypted(t *testing.T) {
	t.Parallel()
	e := startEncrypted(t, t.TempDir(), configuration("'*.sea.example.com'", "secretbox: {keys: ["+key("one")+"]}"))
	namespace(t, e.client, "work")
	fleet := crdServerOver(t, e.testServer)
	fleet.define(t, boats)
	if _, err := fleet.dynamic.Resource(boatsV1).Namespace("work").Create(within(t), boat(t, "first", "{crew: 3, harbour: "+canary+"}"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	all, err := e.store.Client().KV.Get(within(t), "/registry/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range all.Kvs {
		custom := strings.HasPrefix(string(kv.Key), "/registry/sea.example.com/boats/")
		if encrypted := bytes.HasPrefix(kv.Value, []byte("k8s:enc:secretbox:")); encrypted != custom {
			t.Errorf("%s is stored as %.60q, want encrypted %v", kv.Key, kv.Value, custom)
		}
	}
}

// Ciphertext that was copied to another key cannot be decrypted. The object can be deleted with the unsafe option.
func TestE5CiphertextAtAnotherKeyIsUnreadable(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	kms := newKeyService(t)
	kms.start()
	for name, provider := range map[string]string{"AES-GCM": "aesgcm: {keys: [" + key("one") + "]}", "KMS v2": kms.provider("10s")} {
		t.Run(name, func(t *testing.T) {
			e := startEncrypted(t, t.TempDir(), configuration("secrets", provider))
			namespace(t, e.client, "work")
			e.secret(t, "a", canary)
			e.secret(t, "b", "another")
			if _, err := e.store.Client().KV.Put(within(t), "/registry/secrets/work/b", e.raw(t, "a")); err != nil {
				t.Fatal(err)
			}
			unreadable(t, e, "b")
			if value, err := e.get(t, "a"); err != nil || value != canary {
				t.Errorf("GET of the original secret = %q, %v, want %q", value, err, canary)
			}
		})
	}
}

// unreadable checks that reads of the object fail and that only a delete with the unsafe option removes it. Lists work after that.
func unreadable(t *testing.T, e *encrypted, name string) {
	t.Helper()
	secrets := e.client.CoreV1().Secrets("work")
	if value, err := e.get(t, name); !apierrors.IsStoreReadError(err) && !apierrors.IsInternalError(err) || strings.Contains(value, canary) {
		t.Errorf("GET of the unreadable secret %q = %q, %v, want a read error", name, value, err)
	}
	if err := secrets.Delete(within(t), name, metav1.DeleteOptions{}); err == nil {
		t.Errorf("delete of the unreadable secret %q without the option succeeded, want an error", name)
	}
	if err := secrets.Delete(within(t), name, metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: new(true)}); err != nil {
		t.Errorf("delete of the unreadable secret %q with the option failed: %v, want no error", name, err)
	}
	eventually(t, func() error {
		list, err := secrets.List(within(t), metav1.ListOptions{})
		for _, s := range list.Items {
			if s.Name == name {
				err = errors.Join(err, fmt.Errorf("%s is still there", name))
			}
		}
		return err
	})
}

// Replacing a key causes no errors under load. Every write uses the new key, including an update without changes. Objects that
// were not written again are lost when the old key is removed.
func TestE5KeyIsReplacedUnderLoadWithoutErrors(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	by := func(names ...string) string {
		keys := make([]string, len(names))
		for i, n := range names {
			keys[i] = key(n)
		}
		return configuration("secrets", "aesgcm: {keys: ["+strings.Join(keys, ", ")+"]}")
	}
	e := startEncrypted(t, t.TempDir(), by("one"))
	namespace(t, e.client, "work")
	for i := range 5 {
		e.secret(t, fmt.Sprint("s-", i), canary)
	}
	ctx, stop := context.WithCancel(within(t))
	defer stop()
	var work sync.WaitGroup
	const writers = 3
	for i := range writers {
		work.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if value, err := e.get(t, fmt.Sprint("s-", n%5)); err != nil || value != canary {
					t.Errorf("read under load = %q, %v, want %q", value, err, canary)
					return
				}
				secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("busy-", i)}, StringData: map[string]string{"k": fmt.Sprint(n)}}
				_, err := e.client.CoreV1().Secrets("work").Update(ctx, secret, metav1.UpdateOptions{})
				if apierrors.IsNotFound(err) {
					_, err = e.client.CoreV1().Secrets("work").Create(ctx, secret, metav1.CreateOptions{})
				}
				if err != nil && ctx.Err() == nil {
					t.Errorf("write under load failed: %v, want no error", err)
					return
				}
			}
		})
	}
	for i := range writers {
		eventually(t, func() error { _, err := e.get(t, fmt.Sprint("busy-", i)); return err })
	}
	for _, step := range []struct {
		keys []string
		by   string
	}{{[]string{"one", "two"}, "one"}, {[]string{"two", "one"}, "two"}} {
		e.write(t, by(step.keys...))
		for i := range writers {
			eventually(t, func() error {
				if raw := e.raw(t, fmt.Sprint("busy-", i)); !strings.HasPrefix(raw, "k8s:enc:aesgcm:v1:"+step.by+":") {
					return fmt.Errorf("busy-%d is stored as %.40q", i, raw)
				}
				return nil
			})
		}
	}
	for i := range 4 { // s-4 is not written again
		name := fmt.Sprint("s-", i)
		secret, err := e.client.CoreV1().Secrets("work").Get(within(t), name, metav1.GetOptions{})
		if err == nil {
			_, err = e.client.CoreV1().Secrets("work").Update(within(t), secret, metav1.UpdateOptions{})
		}
		if raw := e.raw(t, name); err != nil || !strings.HasPrefix(raw, "k8s:enc:aesgcm:v1:two:") {
			t.Errorf("value of %s after an update without changes: %v, %.40q, want the prefix k8s:enc:aesgcm:v1:two:", name, err, raw)
		}
	}
	stop()
	work.Wait()
	e.write(t, by("two"))
	eventually(t, func() error {
		if _, err := e.get(t, "s-4"); err == nil {
			return errors.New("the old key still works")
		}
		return nil
	})
	if value, err := e.get(t, "s-0"); err != nil || value != canary {
		t.Errorf("GET of s-0 = %q, %v, want %q", value, err, canary)
	}
	unreadable(t, e, "s-4")
}

// An invalid file leaves the previous configuration in force, and the server reports the error.
func TestE5InvalidConfigurationKeepsPreviousOne(t *testing.T) {
	t.Parallel()
	good := configuration("secrets", "aesgcm: {keys: ["+key("one")+"]}")
	e := startEncrypted(t, t.TempDir(), good)
	namespace(t, e.client, "work")
	kms := newKeyService(t) // not running
	for name, text := range map[string]string{
		"not YAML":            "{",
		"a key of a bad size": configuration("secrets", "aesgcm: {keys: [{name: one, secret: "+base64.StdEncoding.EncodeToString([]byte(canary))+"}]}"),
		"a field that is not": strings.Replace(good, "providers", "provider", 1),
		"empty":               "",
		"KMS v1":              configuration("secrets", strings.Replace(kms.provider("1s"), "v2", "v1", 1)),
	} {
		t.Run(name, func(t *testing.T) {
			e.write(t, text)
			eventually(t, func() error {
				if e.by.Stale() == nil {
					return errors.New("it is not told")
				}
				return nil
			})
			if told := e.by.Stale().Error(); !strings.Contains(told, e.file) || strings.Contains(told, base64.StdEncoding.EncodeToString([]byte(canary))) {
				t.Errorf("Stale() = %q, want an error that names %s and does not contain a key", told, e.file)
			}
			e.secret(t, "s-"+strings.ToLower(strings.ReplaceAll(name, " ", "-")), canary)
			e.write(t, good)
			eventually(t, func() error { return e.by.Stale() })
		})
	}
}

// A server waits at its start for a key service that is not available. If the service stops later, decrypted keys remain
// usable. After the service replaces its key, writes use the new key and reads still accept the old key.
func TestE5StartWaitsForKeyServiceAndSurvivesItsStop(t *testing.T) {
	t.Parallel()
	kms := newKeyService(t)
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(file, []byte(configuration("secrets", kms.provider("1s"))), 0o600); err != nil {
		t.Fatal(err)
	}
	early := encryption.New(encryption.Config{File: file, Reload: true, Replica: t.Name()})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- early.Run(ctx) }()
	eventually(t, func() error {
		err := early.Check(ctx)
		if err == nil || !strings.Contains(err.Error(), "no key service has answered yet") {
			return fmt.Errorf("before it is there: %v", err)
		}
		return nil
	})
	select {
	case <-early.Ready():
		t.Error("the server became ready without its key service, want not ready")
	default:
	}
	kms.start()
	eventually(t, func() error {
		select {
		case <-early.Ready():
			return early.Check(ctx)
		default:
			return errors.New("not ready although the service is there")
		}
	})
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}

	e := startEncrypted(t, t.TempDir(), configuration("secrets", kms.provider("10s"))) // answers at once, except on a busy machine
	namespace(t, e.client, "work")
	e.secret(t, "a", canary)
	first := e.raw(t, "a")
	kms.keyID.Store("second")
	e.write(t, configuration("secrets", kms.provider("11s"))) // contacts the service at once instead of within a minute
	serial := 0
	eventually(t, func() error {
		serial++
		e.secret(t, fmt.Sprint("b-", serial), canary)
		if raw := e.raw(t, fmt.Sprint("b-", serial)); !strings.Contains(raw, "second") || strings.Contains(first, "second") {
			return fmt.Errorf("stored as %.80q", raw)
		}
		return nil
	})
	if value, err := e.get(t, "a"); err != nil || value != canary {
		t.Errorf("GET of a secret under the replaced key = %q, %v, want %q", value, err, canary)
	}

	kms.stop()
	for _, name := range []string{"a", fmt.Sprint("b-", serial)} {
		if value, err := e.get(t, name); err != nil || value != canary {
			t.Errorf("GET of %s after the key service stopped = %q, %v, want %q", name, value, err, canary)
		}
	}
	e.secret(t, "c", canary) // upstream uses the known key for three minutes
}

// A start without the key of a stored object reports the object and does not wait for the key.
func TestE5StartWithMissingKeyReportsTheObject(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	dir := t.TempDir()
	t.Run("with it", func(t *testing.T) {
		e := startEncrypted(t, dir, configuration("secrets", "aesgcm: {keys: ["+key("one")+"]}"))
		namespace(t, e.client, "work")
		e.secret(t, "a", canary)
	})
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(file, []byte(configuration("secrets", "aesgcm: {keys: ["+key("two")+"]}")), 0o600); err != nil {
		t.Fatal(err)
	}
	by := encryption.New(encryption.Config{File: file, Replica: t.Name()})
	runUntilEnd(t, "encryption", by.Run, by.Ready())
	s, err := store.New(store.Config{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	runUntilEnd(t, "store", s.Run, s.Ready())
	server, err := New(Config{Store: s, Authorizer: people{}, RuleResolver: people{}, Storage: Storage{Encryption: by}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), cacheTimeout/2)
	defer cancel()
	err = server.Run(ctx)
	if err == nil || !strings.Contains(err.Error(), "/registry/secrets/work/a") || !strings.Contains(err.Error(), "bring back the key") {
		t.Errorf("Run without the key: error = %v, want an error that names the object and the missing key", err)
	}
}
