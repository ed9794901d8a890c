package aggregator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/internal/store/backup"
)

// eventually calls try until it returns no error.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for err := try(); err != nil; err = try() {
		if time.Now().After(deadline) {
			t.Fatalf("condition not met within a minute: %s: %v, want no error", what, err)
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("condition not met before the test ended: %s: %v, want no error", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// takeBackup requests a backup of a front door, as the command does.
func takeBackup(t *testing.T, config *rest.Config, path, file string) backup.Manifest {
	t.Helper()
	manifest, _, err := backup.WriteFile(file, nil, func(w io.Writer) error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, config.Host+path, nil)
		if err != nil {
			return err
		}
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			return err
		}
		defer client.CloseIdleConnections()
		res, err := client.Do(r)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("answered %d", res.StatusCode)
		}
		_, err = io.Copy(w, res.Body)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return manifest
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// A restore drops every object that was created after the backup. Watches that have seen such an object get 410 Gone. An
// informer lists again, drops it and continues. Leases, the election, debts and verdicts are as after any restart.
func TestClientsRecoverAfterRestore(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	fixed := fixedPort(t)
	sockets, err := os.MkdirTemp("", "p") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	socket := filepath.Join(sockets, "etcd")
	samePort := func(c *Config) { c.SecurePort, c.EtcdUnixSocket = fixed, socket }
	config, stop := open(t, filepath.Join(t.TempDir(), "before"), samePort)
	client := kubernetes.NewForConfigOrDie(config)
	configMaps := client.CoreV1().ConfigMaps("default")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if _, err := configMaps.Create(ctx, configMap("early"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// A lease holds an event. A debt is a key of Portico.
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "early"}, InvolvedObject: corev1.ObjectReference{Namespace: "default"}}
	if _, err := client.CoreV1().Events("default").Create(ctx, event, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + socket}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	const debt = `{"id":"a-debt","namespace":"gone","namespaceUID":"u","groupVersion":"notes.example.com/v1","apiService":"v1.notes.example.com","since":"2026-01-01T00:00:00Z"}`
	if _, err := etcd.Put(ctx, "/portico/debts/a-debt", debt); err != nil {
		t.Fatal(err)
	}
	eventually(t, "indebted", func() error {
		if code, body := get(t, config, "/debug/debts"); code != http.StatusOK || !strings.Contains(body, "a-debt") {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	_ = etcd.Close() // returns the error of its cancelled context

	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace("default"))
	lister := factory.Core().V1().ConfigMaps().Lister().ConfigMaps("default")
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	factory.WaitForCacheSync(ctx.Done())
	informed := func(want ...string) func() error {
		return func() error {
			for _, name := range []string{"early", "late-0", "late-49", "afterwards"} {
				_, err := lister.Get(name)
				if slices.Contains(want, name) && err != nil {
					return err
				}
				if !slices.Contains(want, name) && !apierrors.IsNotFound(err) {
					return fmt.Errorf("%s is there, %v", name, err)
				}
			}
			return nil
		}
	}

	file := filepath.Join(t.TempDir(), "b")
	manifest := takeBackup(t, config, "/backup/keys", file)
	if !manifest.IncludesKeys || manifest.Etcd.Revision == 0 {
		t.Errorf("manifest of the backup = %+v, want one with keys and a revision", manifest)
	}
	var last string
	for i := range 50 {
		made, err := configMaps.Create(ctx, configMap(fmt.Sprintf("late-%d", i)), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		last = made.ResourceVersion
	}
	eventually(t, "informed of what came after the backup", informed("early", "late-0", "late-49"))
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	notesServer, err := backup.Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer notesServer.Close()
	dir := filepath.Join(t.TempDir(), "after")
	if _, err := notesServer.Restore(backup.Target{DataDir: dir, Log: zap.NewNop()}); err != nil {
		t.Fatal(err)
	}
	// The backup includes the keys, so existing clients keep their credentials.
	_, stop = open(t, dir, samePort)
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()

	for _, options := range []metav1.ListOptions{
		{ResourceVersion: last},
		{ResourceVersion: last, AllowWatchBookmarks: true},
	} {
		if err := gone(ctx, client, options); err != nil {
			t.Errorf("watch from the lost version %s: %v, want 410 Gone", last, err)
		}
	}
	eventually(t, "informed of the restore", informed("early"))
	made, err := configMaps.Create(ctx, configMap("afterwards"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(made.ResourceVersion) <= len(last) {
		t.Errorf("resource version after the restore = %s, want one longer than %s", made.ResourceVersion, last)
	}
	eventually(t, "informed of what came after the restore", informed("early", "afterwards"))

	if _, err := client.CoreV1().Events("default").Get(ctx, "early", metav1.GetOptions{}); err != nil {
		t.Errorf("Get of an event with a lease after the restore failed: %v, want no error", err)
	}
	if code, body := get(t, config, "/debug/debts"); code != http.StatusOK || !strings.Contains(body, "a-debt") {
		t.Errorf("/debug/debts after the restore = %d %s, want 200 and the debt a-debt", code, body)
	}
	// Only the leader creates the default objects of a namespace.
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "afterwards"}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "leading", func() error {
		_, err := client.CoreV1().ServiceAccounts("afterwards").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	slice, err := client.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=kubernetes"})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range slice.Items {
		if len(s.Endpoints) > 1 {
			t.Errorf("endpoints of the Service kubernetes after the restore = %v, want at most 1", s.Endpoints)
		}
	}
}

// gone starts a watch and returns nil if the result is 410, as a response or as an event.
func gone(ctx context.Context, client kubernetes.Interface, options metav1.ListOptions) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	w, err := client.CoreV1().ConfigMaps("default").Watch(ctx, options)
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer w.Stop()
	event, open := <-w.ResultChan()
	if !open {
		return errors.New("it ended without a word")
	}
	if event.Type != watch.Error {
		return fmt.Errorf("it began with %s %v", event.Type, event.Object)
	}
	if err := apierrors.FromObject(event.Object); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		return err
	}
	return nil
}

// A backup contains every Secret. Taking one therefore requires a separate right that no role with read access to everything
// includes. A backup with keys requires another right.
func TestBackupNeedsDedicatedRight(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	dir := t.TempDir()
	config, stop := open(t, dir)
	client := kubernetes.NewForConfigOrDie(config)
	for name, rule := range map[string]rbacv1.PolicyRule{
		"reader":  {NonResourceURLs: []string{"*"}, Verbs: []string{"get", "head"}},
		"objects": {APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}},
		"backups": {NonResourceURLs: []string{"/backup"}, Verbs: []string{"post"}},
	} {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}}
		if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	shipped, err := client.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	users := map[string]*rest.Config{}
	for _, role := range shipped.Items {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "who-may-" + strings.ReplaceAll(role.Name, ":", "-")},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "user-of-" + role.Name}},
		}
		if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"reader", "objects", "backups", "nobody"} {
		text, err := Kubeconfig(dir, config.Host, "", "user-of-"+name, nil, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if users[name], err = clientcmd.RESTConfigFromKubeConfig(text); err != nil {
			t.Fatal(err)
		}
	}
	users["masters"] = config
	users["anonymous"] = rest.AnonymousClientConfig(config)
	ask := func(config *rest.Config, method, path string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, config.Host+path, bytes.NewReader(nil))
		if err != nil {
			t.Fatal(err)
		}
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		defer client.CloseIdleConnections()
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Fatal(err)
		}
		return res.StatusCode
	}
	eventually(t, "known to RBAC", func() error {
		if code := ask(users["backups"], http.MethodPost, "/backup"); code != http.StatusOK {
			return fmt.Errorf("answered %d", code)
		}
		if code := ask(users["reader"], http.MethodGet, "/metrics"); code != http.StatusOK {
			return fmt.Errorf("answered %d", code)
		}
		return nil
	})
	for _, c := range []struct {
		user, method, path string
		code               int
	}{
		{"masters", http.MethodPost, "/backup", http.StatusOK},
		{"masters", http.MethodPost, "/backup/keys", http.StatusOK},
		{"masters", http.MethodGet, "/backup", http.StatusMethodNotAllowed},
		{"backups", http.MethodPost, "/backup/keys", http.StatusForbidden},
		{"reader", http.MethodPost, "/backup", http.StatusForbidden},
		{"objects", http.MethodPost, "/backup", http.StatusForbidden},
		{"nobody", http.MethodPost, "/backup", http.StatusForbidden},
		{"anonymous", http.MethodPost, "/backup", http.StatusForbidden},
		{"anonymous", http.MethodPost, "/backup/keys", http.StatusForbidden},
	} {
		if code := ask(users[c.user], c.method, c.path); code != c.code {
			t.Errorf("user %s: status of %s %s = %d, want %d", c.user, c.method, c.path, code, c.code)
		}
	}
	// Of the roles that every cluster begins with, only the one for everything has it.
	for _, role := range shipped.Items {
		for _, path := range []string{"/backup", "/backup/keys"} {
			may := slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
				return (slices.Contains(rule.Verbs, "post") || slices.Contains(rule.Verbs, "*")) && slices.ContainsFunc(rule.NonResourceURLs, func(url string) bool {
					prefix, wild := strings.CutSuffix(url, "*")
					return url == path || wild && strings.HasPrefix(path, prefix)
				})
			})
			if want := role.Name == "cluster-admin" || role.Name == "backups" && path == "/backup"; may != want {
				t.Errorf("role %s may post %s = %v, want %v", role.Name, path, may, want)
			}
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestInvalidBackupSettingsAreRejected(t *testing.T) {
	for name, c := range map[string]struct{ args, refused string }{
		"everything given": {"--backup-dir b --backup-interval 1h --backup-retention 1 --backup-include-keys --backup-recipients-file r", ""},
		"a directory":      {"--backup-dir b", ""},
		"no directory":     {"--backup-retention 3", "--backup-dir: is needed"},
		"too often":        {"--backup-dir b --backup-interval 1s", "--backup-interval: 1s is too short"},
		"none kept":        {"--backup-dir b --backup-retention 0", "--backup-retention"},
		"keys in the open": {"--backup-dir b --backup-include-keys", "--backup-include-keys: needs --backup-recipients-file"},
		"within etcd":      {"--data-dir d --backup-dir d/etcd/backups", "--backup-dir: d/etcd/backups is in the directory of etcd"},
		"beside etcd":      {"--data-dir d --backup-dir d/backups", ""},
	} {
		t.Run(name, func(t *testing.T) {
			config := Default()
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			config.AddFlags(fs)
			if err := fs.Parse(strings.Fields(c.args)); err != nil {
				t.Fatal(err)
			}
			err := config.Validate()
			if c.refused == "" && err != nil || c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
				t.Errorf("Validate(%q) error = %v, want %q", c.args, err, c.refused)
			}
		})
	}
}
