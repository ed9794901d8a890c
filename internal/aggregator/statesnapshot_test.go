package aggregator

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"portico.dev/internal/pki"
	"portico.dev/internal/run"
	"portico.dev/internal/store"
)

// withoutEtcd is a front door with a state snapshot and an etcd that the test can stop.
type withoutEtcd struct {
	t       *testing.T
	dir     string // of the front door
	etcd    string // the directory of etcd
	socket  string // of etcd
	relay   *relay // by which the front door reaches it
	tokens  string
	file    string // the snapshot
	backend *cutBackend
	bound   map[string]string // tokens, by the pods that they are bound to
	stop    func() error      // etcd
	change  func(*Config)
}

func newWithoutEtcd(t *testing.T) *withoutEtcd {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	sockets, err := os.MkdirTemp("", "p") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	e := &withoutEtcd{
		t: t, dir: t.TempDir(), etcd: t.TempDir(), socket: filepath.Join(sockets, "etcd"), tokens: filepath.Join(t.TempDir(), "tokens.csv"),
		file: filepath.Join(t.TempDir(), "state"), backend: &cutBackend{t: t},
	}
	if err := os.WriteFile(e.tokens, []byte("canary-alice,alice,u-1\ncanary-carol,carol,u-2\ncanary-mallory,mallory,u-3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e.startEtcd()
	e.relay = newRelay(t, filepath.Join(sockets, "relay"), e.socket)
	e.change = func(c *Config) {
		c.EtcdServers, c.TokenAuthFile = []string{"unix://" + filepath.Join(sockets, "relay")}, e.tokens
		c.StateSnapshot.File, c.StateSnapshot.Wait = e.file, time.Second
	}
	return e
}

func (e *withoutEtcd) startEtcd() { e.stop = startEtcdIn(e.t, e.etcd, e.socket) }

// serveBackend serves the backend as the Service default/notes, and returns its port and CA certificates.
func (e *withoutEtcd) serveBackend() (int32, []byte) {
	authority, err := pki.NewAuthority("extension")
	if err != nil {
		e.t.Fatal(err)
	}
	certPEM, keyPEM, err := authority.Issue(pki.Leaf{CommonName: "notes", DNSNames: []string{"notes.default.svc"}, Server: true})
	if err != nil {
		e.t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(certPEM, keyPEM)
	if err != nil {
		e.t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(e.backend)
	server.TLS, server.EnableHTTP2 = pki.ServerConfig(pair), true
	server.StartTLS()
	e.t.Cleanup(server.Close)
	return int32(server.Listener.Addr().(*net.TCPAddr).Port), authority.PEM()
}

// tokenOf is a client of the front door with a token.
func tokenOf(admin *rest.Config, token string) *rest.Config {
	c := rest.AnonymousClientConfig(admin)
	c.BearerToken = token
	return c
}

// fill makes users, backends, a kind and a debt, and returns the tokens of two service accounts, of which the second one is deleted.
func (e *withoutEtcd) fill(ctx context.Context, admin *rest.Config) (robot, gone string) {
	t := e.t
	t.Helper()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	client, create := kubernetes.NewForConfigOrDie(admin), metav1.CreateOptions{}
	port, bundle := e.serveBackend()
	must(client.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "notes"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, create))
	apiServices := aggregatorclient.NewForConfigOrDie(admin).ApiregistrationV1().APIServices()
	for _, group := range []string{"notes.example.com", "owing.example.com"} {
		must(apiServices.Create(ctx, &apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: "v1." + group},
			Spec: apiregistrationv1.APIServiceSpec{
				Group: group, Version: "v1", GroupPriorityMinimum: 100, VersionPriority: 100, CABundle: bundle,
				Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "notes", Port: &port},
			},
		}, create))
	}
	must(client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "noting"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"notes.example.com", "owing.example.com"}, Resources: []string{"*"}, Verbs: []string{"*"}}},
	}, create))
	for _, user := range []string{"alice", "carol", "mallory"} {
		must(client.RbacV1().ClusterRoleBindings().Create(ctx, binding(user, rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}), create))
	}
	for _, name := range []string{"robot", "gone"} {
		must(client.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, create))
		must(client.RbacV1().ClusterRoleBindings().Create(ctx, binding(name, rbacv1.Subject{Kind: "ServiceAccount", Namespace: "default", Name: name}), create))
		issued, err := client.CoreV1().ServiceAccounts("default").CreateToken(ctx, name, &authenticationv1.TokenRequest{}, create)
		must(issued, err)
		robot, gone = gone, issued.Status.Token
	}
	e.bound = map[string]string{}
	for _, name := range []string{"stays", "ends"} {
		pod, err := client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.PodSpec{ServiceAccountName: "robot", Containers: []corev1.Container{{Name: "c", Image: "registry.invalid/none"}}},
		}, create)
		must(pod, err)
		issued, err := client.CoreV1().ServiceAccounts("default").CreateToken(ctx, "robot", &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: name, UID: pod.UID}},
		}, create)
		must(issued, err)
		e.bound[name] = issued.Status.Token
		eventually(t, "that the pod "+name+" is served", func() error { return answers(t, tokenOf(admin, e.bound[name]), notes+"/a", http.StatusOK, "Note") })
	}
	must(nil, client.CoreV1().Pods("default").Delete(ctx, "ends", *metav1.NewDeleteOptions(0)))
	must(client.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "safe"}, StringData: map[string]string{"k": "hunter2-in-the-clear"}}, create))
	must(dynamic.NewForConfigOrDie(admin).Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}).
		Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "widgets.shop.example.com"},
			"spec": map[string]any{
				"group": "shop.example.com", "scope": "Namespaced", "names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget"},
				"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
					"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
				}}},
			},
		}}, create))
	eventually(t, "that the kind is served", func() error { return answers(t, admin, "/apis/shop.example.com/v1", http.StatusOK, "widgets") })
	for name, token := range map[string]string{"alice": "canary-alice", "mallory": "canary-mallory", "robot": robot, "gone": gone} {
		eventually(t, "that "+name+" is served", func() error { return answers(t, tokenOf(admin, token), notes+"/a", http.StatusOK, "Note") })
	}
	// Rights that are removed before the end stay removed.
	must(nil, client.RbacV1().ClusterRoleBindings().Delete(ctx, "mallory", metav1.DeleteOptions{}))
	must(nil, client.CoreV1().ServiceAccounts("default").Delete(ctx, "gone", metav1.DeleteOptions{}))
	e.recordDebt(ctx)
	eventually(t, "that the debt is known", func() error {
		return answers(t, admin, "/apis/owing.example.com/v1/namespaces/default/notes/a", http.StatusServiceUnavailable, "CleanupDebt")
	})
	return robot, gone
}

func binding(name string, subject rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "noting"},
	}
}

// recordDebt writes a debt that no cleaner of this release can pay.
func (e *withoutEtcd) recordDebt(ctx context.Context) {
	e.t.Helper()
	s, err := store.New(store.Config{Servers: []string{"unix://" + e.socket}})
	if err != nil {
		e.t.Fatal(err)
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(running) }()
	<-s.Ready()
	if err := s.Put(ctx, "debts/old", []byte(`{"version":99,"id":"old","apiService":"v1.owing.example.com","namespace":"gone"}`)); err != nil {
		e.t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		e.t.Error(err)
	}
}

func answers(t *testing.T, config *rest.Config, path string, code int, text string) error {
	t.Helper()
	if got, body := get(t, config, path); got != code || !strings.Contains(body, text) {
		return fmt.Errorf("%s: %d %.300s; want %d %s", path, got, body, code, text)
	}
	return nil
}

// A front door that starts while etcd is away serves backends from its state snapshot. Refused users stay refused, and local
// groups are not served. When etcd is back it serves the changes since then, and requests to backends succeed throughout.
func TestStartWithoutEtcdServesStateSnapshot(t *testing.T) {
	t.Parallel()
	e := newWithoutEtcd(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	admin, stop := open(t, e.dir, e.change)
	robot, gone := e.fill(ctx, admin)
	discovered := e.discovery(ctx, admin)
	if err := stop(); err != nil { // writes the changes
		t.Fatal(err)
	}
	if file, err := os.ReadFile(e.file); err != nil || strings.Contains(string(file), "hunter2") || strings.Contains(string(file), "noting") {
		t.Errorf("snapshot file: error = %v, want no error and no plain text of the state", err)
	}
	if err := e.stop(); err != nil {
		t.Fatal(err)
	}

	admin, stop = open(t, e.dir, e.change)
	now := func(what string, config *rest.Config, path string, code int, text string) {
		t.Helper()
		if err := answers(t, config, path, code, text); err != nil {
			t.Errorf("response (%s): %v, want no error", what, err)
		}
	}
	alice := tokenOf(admin, "canary-alice")
	now("a user", alice, notes+"/a", http.StatusOK, "Note")
	now("a service account", tokenOf(admin, robot), notes+"/a", http.StatusOK, "Note")
	now("a pod", tokenOf(admin, e.bound["stays"]), notes+"/a", http.StatusOK, "Note")
	now("a pod that was deleted", tokenOf(admin, e.bound["ends"]), notes+"/a", http.StatusUnauthorized, "Unauthorized")
	now("a certificate", admin, notes+"/a", http.StatusOK, "Note")
	now("who was refused", tokenOf(admin, "canary-mallory"), notes+"/a", http.StatusForbidden, "mallory")
	now("a service account that was deleted", tokenOf(admin, gone), notes+"/a", http.StatusUnauthorized, "Unauthorized")
	now("a backend with a debt", admin, "/apis/owing.example.com/v1/namespaces/default/notes/a", http.StatusServiceUnavailable, "CleanupDebt")
	for _, path := range []string{"/api/v1/namespaces", "/api/v1/pods?resourceVersion=0", "/api/v1/namespaces/default/secrets/safe", "/apis/shop.example.com/v1/widgets"} {
		now("a local group", admin, path, http.StatusServiceUnavailable, "no member of etcd has answered since")
	}
	core := kubernetes.NewForConfigOrDie(admin).CoreV1().RESTClient()
	err := core.Post().AbsPath("/api/v1/namespaces/default/configmaps").MaxRetries(0).Body(configMap("never")).Do(ctx).Error()
	if seconds, again := apierrors.SuggestsClientDelay(err); !apierrors.IsServiceUnavailable(err) || !again || seconds != 1 {
		t.Errorf("Create without etcd = %v, want ServiceUnavailable with Retry-After 1", err)
	}
	review, err := kubernetes.NewForConfigOrDie(alice).AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Group: "notes.example.com", Resource: "notes", Verb: "get", Namespace: "default"}},
	}, metav1.CreateOptions{})
	if err != nil || !review.Status.Allowed {
		t.Errorf("SelfSubjectAccessReview without etcd = %v, %v; want allowed", review, err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, admin.Host+notes, strings.NewReader(`{"kind":"Note"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if res, body := do(t, alice, r); res.StatusCode != http.StatusCreated || body != `{"kind":"Note"}` || !strings.Contains(res.Header.Get("Warning"), "started without it, from its state of") {
		t.Errorf("POST of a note without etcd = %d %s, %v; want 201 and a warning", res.StatusCode, body, res.Header)
	}
	// A start does not wait for backends. Their discovery documents are the stored ones until the first poll.
	eventually(t, "that discovery is as before", func() error {
		if again := e.discovery(ctx, admin); again != discovered {
			return fmt.Errorf("it is\n%s\nand was\n%s", again, discovered)
		}
		return nil
	})
	now("OpenAPI", admin, "/openapi/v3", http.StatusOK, "apis/shop.example.com/v1")
	now("readiness", admin, "/readyz?verbose", http.StatusOK, "[+]state-snapshot ok: serving the state of")
	now("readiness of etcd", admin, "/readyz/etcd", http.StatusInternalServerError, "[-]etcd failed")
	now("metrics", admin, "/metrics", http.StatusOK, "portico_etcd_available 0")
	if _, text := get(t, admin, "/metrics"); !strings.Contains(text, "portico_state_snapshot_served_age_seconds") || strings.Contains(text, "portico_state_snapshot_served_age_seconds 0\n") {
		t.Error("/metrics has no age of the served snapshot or the age 0, want a positive one")
	}

	// Requests, a watch and an upgraded connection continue while etcd comes back.
	traffic := e.keepAsking(ctx, alice)
	watch := e.watch(ctx, alice)
	upgraded := e.upgrade(alice)
	upgraded.echo(t)

	// Another replica changes something before this one reaches etcd.
	e.relay.set(true)
	e.startEtcd()
	other, stopOther := open(t, beside(t, e.dir), e.change, func(c *Config) {
		c.EtcdServers, c.StateSnapshot = []string{"unix://" + e.socket}, defaultStateSnapshot()
	})
	if err := kubernetes.NewForConfigOrDie(other).RbacV1().ClusterRoleBindings().Delete(ctx, "carol", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	now("who was allowed", tokenOf(admin, "canary-carol"), notes+"/a", http.StatusOK, "Note")
	e.relay.set(false)
	eventually(t, "that local groups are served", func() error { return answers(t, admin, "/api/v1/namespaces/default", http.StatusOK, "Namespace") })
	eventually(t, "that what was taken away is away", func() error {
		return answers(t, tokenOf(admin, "canary-carol"), notes+"/a", http.StatusForbidden, "carol")
	})
	now("a kind", admin, "/apis/shop.example.com/v1/widgets", http.StatusOK, "WidgetList")
	now("a Secret", admin, "/api/v1/namespaces/default/secrets/safe", http.StatusOK, "safe")
	if _, err := kubernetes.NewForConfigOrDie(admin).CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "now"}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("Create after etcd came back failed: %v, want no error", err)
	}
	now("metrics", admin, "/metrics", http.StatusOK, "portico_state_snapshot_served_age_seconds 0\n")
	now("the debt is still there", admin, "/apis/owing.example.com/v1/namespaces/default/notes/a", http.StatusServiceUnavailable, "CleanupDebt")
	eventually(t, "that both replicas know each other", func() error {
		return answers(t, admin, "/metrics", http.StatusOK, `leader_election_master_status{name="portico-aggregator"} 0`)
	})
	if res, _ := do(t, alice, newGet(ctx, t, admin.Host+notes+"/a")); res.Header.Get("Warning") != "" {
		t.Errorf("Warning after etcd came back = %s, want none", res.Header.Get("Warning"))
	}
	upgraded.echo(t)
	watch.stillOpen(t)
	traffic.stop(t)
	_, _ = upgraded.conn.Close(), watch.body.Close() // neither is to be waited for
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := stopOther(); err != nil {
		t.Error(err)
	}
}

// An etcd that is available only for moments, during the change over to it, causes no failed request for a backend either.
// Local groups are served when it stays available.
func TestIntermittentEtcdFailsNoBackendRequest(t *testing.T) {
	t.Parallel()
	e := newWithoutEtcd(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	admin, stop := open(t, e.dir, e.change)
	e.fill(ctx, admin)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	e.relay.set(true)
	admin, stop = open(t, e.dir, e.change)
	alice := tokenOf(admin, "canary-alice")
	traffic := e.keepAsking(ctx, alice)
	for range 2 {
		e.relay.set(false)
		eventually(t, "that etcd answers", func() error { return answers(t, admin, "/readyz/etcd", http.StatusOK, "ok") })
		e.relay.set(true)
		eventually(t, "that etcd is lost", func() error {
			return answers(t, admin, "/readyz/etcd", http.StatusInternalServerError, "[-]etcd failed")
		})
		for path, code := range map[string]int{"/readyz": http.StatusOK, notes + "/a": http.StatusOK} {
			if err := answers(t, alice, path, code, ""); err != nil {
				t.Error(err)
			}
		}
	}
	e.relay.set(false)
	eventually(t, "that local groups are served", func() error { return answers(t, admin, "/api/v1/namespaces/default", http.StatusOK, "Namespace") })
	eventually(t, "that it leads", func() error {
		return answers(t, admin, "/metrics", http.StatusOK, `leader_election_master_status{name="portico-aggregator"} 1`)
	})
	if err := answers(t, tokenOf(admin, "canary-mallory"), notes+"/a", http.StatusForbidden, "mallory"); err != nil {
		t.Error(err)
	}
	traffic.stop(t)
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A release that cannot write its objects at the start, because etcd is away, starts nevertheless.
func TestNewReleaseStartsWithoutEtcd(t *testing.T) {
	t.Parallel()
	e := newWithoutEtcd(t)
	_, stop := open(t, e.dir, e.change, func(c *Config) {
		c.RuntimeConfig, c.EnablePriorityAndFairness = cliflag.ConfigurationMap{"policy/v1": "false"}, false
	})
	eventually(t, "a snapshot", func() error { _, err := os.Stat(e.file); return err })
	for _, stop := range []func() error{stop, e.stop} {
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	admin, stop := open(t, e.dir, e.change) // has no APIService v1.policy, and no flow control objects
	if err := answers(t, admin, "/readyz?verbose", http.StatusOK, "[+]state-snapshot ok: serving the state of"); err != nil {
		t.Error(err)
	}
	if err := answers(t, admin, "/apis/policy/v1", http.StatusOK, "poddisruptionbudgets"); err != nil {
		t.Error(err)
	}
	e.startEtcd()
	eventually(t, "that it is registered", func() error {
		return answers(t, admin, "/apis/apiregistration.k8s.io/v1/apiservices/v1.policy", http.StatusOK, "v1.policy")
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A state that becomes too old while it is served is not served any longer.
func TestExpiredStateSnapshotIsNotServed(t *testing.T) {
	of := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	if err := checkAge(of, time.Hour, of.Add(time.Hour)); err != nil {
		t.Error(err)
	}
	if err := checkAge(of, time.Hour, of.Add(time.Hour+time.Nanosecond)); err == nil || !strings.Contains(err.Error(), "the state of 2026-11-25T12:00:00Z is older than --state-snapshot-max-age (1h0m0s)") {
		t.Errorf("checkAge of a state that is too old: error = %v, want one that names --state-snapshot-max-age", err)
	}
}

func newGet(ctx context.Context, t *testing.T, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// discovery is all group-versions and resources.
func (e *withoutEtcd) discovery(ctx context.Context, admin *rest.Config) string {
	e.t.Helper()
	var all string
	for _, path := range []string{"/api", "/apis"} {
		r := newGet(ctx, e.t, admin.Host+path)
		r.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		res, body := do(e.t, admin, r)
		if res.StatusCode != http.StatusOK || !json.Valid([]byte(body)) {
			e.t.Fatalf("discovery = %d %.300s, want 200 and JSON", res.StatusCode, body)
		}
		all += body
	}
	return all
}

// traffic is a sequence of requests for a backend.
type traffic struct {
	end    context.CancelFunc
	ended  sync.WaitGroup
	mu     sync.Mutex // guards the following fields
	served int
	failed []string
}

func (e *withoutEtcd) keepAsking(ctx context.Context, config *rest.Config) *traffic {
	e.t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		e.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &traffic{end: cancel}
	note := func(problem string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if problem == "" {
			c.served++
		} else if len(c.failed) < 5 {
			c.failed = append(c.failed, problem)
		}
	}
	ask := func(method, path string, body io.Reader, want int) {
		r, err := http.NewRequestWithContext(ctx, method, config.Host+path, body)
		if err != nil {
			note(err.Error())
			return
		}
		res, err := client.Do(r)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			note(err.Error())
			return
		}
		text, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		switch {
		case ctx.Err() != nil:
		case err != nil:
			note(err.Error())
		case res.StatusCode != want:
			note(fmt.Sprintf("%s %s: %d %.300s", method, path, res.StatusCode, text))
		default:
			note("")
		}
	}
	c.ended.Go(func() {
		for ctx.Err() == nil {
			ask(http.MethodGet, notes+"/a", nil, http.StatusOK)
			ask(http.MethodPost, notes, strings.NewReader(`{}`), http.StatusCreated)
			ask(http.MethodGet, "/apis/notes.example.com/v1", nil, http.StatusOK)
			ask(http.MethodGet, "/apis", nil, http.StatusOK)
			run.Pause(ctx, 20*time.Millisecond)
		}
	})
	return c
}

func (c *traffic) stop(t *testing.T) {
	t.Helper()
	c.end()
	c.ended.Wait()
	if len(c.failed) > 0 || c.served < 50 {
		t.Errorf("%d requests were served, want at least 50; failed requests = %q, want none", c.served, c.failed)
	}
	t.Logf("%d requests were served, none failed", c.served)
}

// openWatch is a watch of a backend.
type openWatch struct {
	body  io.Closer
	ended chan error
}

func (e *withoutEtcd) watch(ctx context.Context, config *rest.Config) *openWatch {
	e.t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		e.t.Fatal(err)
	}
	res, err := client.Do(newGet(ctx, e.t, config.Host+notes+"?watch=true"))
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = res.Body.Close() })
	reader := bufio.NewReader(res.Body)
	if line, err := reader.ReadString('\n'); err != nil || !strings.Contains(line, "ADDED") {
		e.t.Fatalf("first event of the watch = %q, %v; want ADDED", line, err)
	}
	w := &openWatch{body: res.Body, ended: make(chan error, 1)}
	go func() {
		_, err := reader.ReadByte()
		w.ended <- err
	}()
	return w
}

func (w *openWatch) stillOpen(t *testing.T) {
	t.Helper()
	select {
	case err := <-w.ended:
		t.Errorf("the watch ended with %v, want it open", err)
	default:
	}
}

// upgradedConn is a connection that echoes.
type upgradedConn struct {
	conn   *tls.Conn
	reader *bufio.Reader
}

func (e *withoutEtcd) upgrade(config *rest.Config) *upgradedConn {
	e.t.Helper()
	settings, err := rest.TLSConfigFor(config)
	if err != nil {
		e.t.Fatal(err)
	}
	settings.NextProtos = []string{"http/1.1"}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(config.Host, "https://"), settings)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprintf(conn, "GET %s/a/attach HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", notes, config.BearerToken)
	reader := bufio.NewReader(conn)
	if res, err := http.ReadResponse(reader, nil); err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		e.t.Fatalf("upgrade = %v, %v; want 101", res, err)
	}
	return &upgradedConn{conn, reader}
}

func (u *upgradedConn) echo(t *testing.T) {
	t.Helper()
	if err := u.conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(u.conn, "hello"); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 5)
	if _, err := io.ReadFull(u.reader, answer); err != nil || string(answer) != "hello" {
		t.Errorf("echo over the upgraded connection = %q, %v; want hello", answer, err)
	}
}
