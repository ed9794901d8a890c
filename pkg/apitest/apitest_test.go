package apitest_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/pkg/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func clientOf(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	must(t, err)
	return c
}

func eventually(t *testing.T, what string, condition func(ctx context.Context) (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := wait.PollUntilContextCancel(ctx, 5*time.Millisecond, true, condition); err != nil {
		t.Fatalf("condition %q not met within a minute: %v, want it to be true", what, err)
	}
}

func configMap(name string, owners ...metav1.OwnerReference) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}
}

func TestControllersRunInTheEnvironment(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	client, ctx := clientOf(t, env.Config), t.Context()

	t.Run("namespaces terminate", func(t *testing.T) {
		in := env.In(t)
		namespace := in.Namespace()
		_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, configMap("a"), metav1.CreateOptions{})
		must(t, err)
		t.Cleanup(func() {
			if _, err := client.CoreV1().Namespaces().Get(context.Background(), namespace, metav1.GetOptions{}); err != nil {
				t.Errorf("Get of namespace %s before the end of the test failed: %v, want no error", namespace, err)
			}
		})
	})
	list, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	must(t, err)
	for _, n := range list.Items {
		if strings.HasPrefix(n.Name, "test-") {
			t.Errorf("namespace %s exists after its test, want it deleted", n.Name)
		}
	}

	t.Run("dependents are collected", func(t *testing.T) {
		maps := client.CoreV1().ConfigMaps(env.In(t).Namespace())
		owner, err := maps.Create(ctx, configMap("owner"), metav1.CreateOptions{})
		must(t, err)
		_, err = maps.Create(ctx, configMap("dependent", metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}), metav1.CreateOptions{})
		must(t, err)
		must(t, maps.Delete(ctx, "owner", metav1.DeleteOptions{}))
		eventually(t, "the dependent goes", func(ctx context.Context) (bool, error) {
			_, err := maps.Get(ctx, "dependent", metav1.GetOptions{})
			return apierrors.IsNotFound(err), nil
		})
	})

	t.Run("quotas count", func(t *testing.T) {
		namespace := env.In(t).Namespace()
		_, err := client.CoreV1().ResourceQuotas(namespace).Create(ctx, &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/secrets": resource.MustParse("1")}},
		}, metav1.CreateOptions{})
		must(t, err)
		eventually(t, "the quota has a status", func(ctx context.Context) (bool, error) {
			q, err := client.CoreV1().ResourceQuotas(namespace).Get(ctx, "q", metav1.GetOptions{})
			return err == nil && len(q.Status.Used) > 0, err
		})
		secret := func(name string) error {
			_, err := client.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			return err
		}
		must(t, secret("one"))
		if err := secret("two"); !apierrors.IsForbidden(err) {
			t.Errorf("Create of a second Secret under a quota of one: error = %v, want Forbidden", err)
		}
	})

	t.Run("service accounts have tokens, which expire", func(t *testing.T) {
		namespace := env.In(t).Namespace()
		accounts := client.CoreV1().ServiceAccounts(namespace)
		eventually(t, "the default service account", func(ctx context.Context) (bool, error) {
			_, err := accounts.Get(ctx, "default", metav1.GetOptions{})
			return err == nil, nil
		})
		hour := int64(3600)
		token, err := accounts.CreateToken(ctx, "default", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour}}, metav1.CreateOptions{})
		must(t, err)
		config := rest.AnonymousClientConfig(env.Config)
		config.BearerToken = token.Status.Token
		whoAmI := func() error {
			_, err := clientOf(t, config).AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
			return err
		}
		must(t, whoAmI())
		env.Advance(2 * time.Hour)
		if err := whoAmI(); !apierrors.IsUnauthorized(err) {
			t.Errorf("SelfSubjectReview with an expired token: error = %v, want Unauthorized", err)
		}
	})
}

func TestUsersHaveOnlyTheirRights(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	namespace, ctx := env.Namespace(), t.Context()
	alice := clientOf(t, env.User("alice@example.com", "developers"))
	if _, err := alice.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("List of Pods in %s without rights: error = %v, want Forbidden", namespace, err)
	}
	env.Grant("alice@example.com", namespace, rbacv1.PolicyRule{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods"}})
	if _, err := alice.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("List of Pods in %s with a granted right failed: %v, want no error", namespace, err)
	}
	if _, err := alice.CoreV1().Pods("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("List of Pods in namespace default, which has no grant: error = %v, want Forbidden", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", env.WriteKubeconfig())
	must(t, err)
	if _, err := clientOf(t, config).CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("List of Nodes with the written kubeconfig failed: %v, want no error", err)
	}
}

func TestSnapshotRestoresObjects(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	maps, ctx := clientOf(t, env.Config).CoreV1().ConfigMaps("default"), t.Context()
	_, err := maps.Create(ctx, configMap("kept"), metav1.CreateOptions{})
	must(t, err)
	before := env.Snapshot()
	must(t, maps.Delete(ctx, "kept", metav1.DeleteOptions{}))
	_, err = maps.Create(ctx, configMap("later"), metav1.CreateOptions{})
	must(t, err)
	env.Restore(before)
	list, err := maps.List(ctx, metav1.ListOptions{})
	must(t, err)
	var names []string
	for _, m := range list.Items {
		if m.Name != "kube-root-ca.crt" { // A controller may write it at any time.
			names = append(names, m.Name)
		}
	}
	if got := strings.Join(names, " "); got != "kept" {
		t.Errorf("ConfigMaps after the restore = %s, want kept", got)
	}
}

const crd = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: ignored}
`

const webhook = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: widgets}
webhooks:
- name: widgets.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {service: {namespace: system, name: webhook, path: /validate}}
  rules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [widgets]}]
`

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

func widget(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name}}}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
}

func TestFilesInstallDefinitionsAndWebhooks(t *testing.T) {
	t.Parallel()
	definitions, webhooks := t.TempDir(), t.TempDir()
	write(t, definitions, "widgets.yaml", crd)
	write(t, webhooks, "manifests.yaml", webhook)
	env := apitest.StartWith(t, &apitest.Environment{
		CRDDirectoryPaths:     []string{definitions, filepath.Join(definitions, "missing")},
		WebhookInstallOptions: apitest.WebhookInstallOptions{Paths: []string{webhooks}},
	})
	o := env.WebhookInstallOptions
	certificate, err := tls.LoadX509KeyPair(filepath.Join(o.LocalServingCertDir, "tls.crt"), filepath.Join(o.LocalServingCertDir, "tls.key"))
	must(t, err)
	listener, err := tls.Listen("tcp", o.LocalServingHost+":"+strconv.Itoa(o.LocalServingPort), &tls.Config{Certificates: []tls.Certificate{certificate}})
	must(t, err)
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		review.Response = &admissionv1.AdmissionResponse{
			UID: review.Request.UID, Allowed: review.Request.Name != "bad", Result: &metav1.Status{Message: "not this one, from " + r.URL.Path},
		}
		_ = json.NewEncoder(w).Encode(review)
	})}}
	server.Start()
	defer server.Close()

	client, err := dynamic.NewForConfig(env.Config)
	must(t, err)
	in := client.Resource(widgets).Namespace(env.Namespace())
	_, err = in.Create(t.Context(), widget("good"), metav1.CreateOptions{})
	must(t, err)
	if _, err = in.Create(t.Context(), widget("bad"), metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "not this one, from /validate") {
		t.Errorf("Create of an object that the webhook denies: error = %v, want the message of the webhook", err)
	}
}

func TestMissingCRDPathReturnsError(t *testing.T) {
	t.Parallel()
	e := &apitest.Environment{CRDDirectoryPaths: []string{"nowhere"}, ErrorIfCRDPathMissing: true}
	if _, err := e.Start(); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("Start with CRD directory \"nowhere\": error = %v, want an error that contains \"nowhere\"", err)
	}
	must(t, e.Stop())
	must(t, (&apitest.Environment{}).Stop())
}

func TestBackends(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	client, ctx := clientOf(t, env.Config), t.Context()
	objects, err := dynamic.NewForConfig(env.Config)
	must(t, err)

	t.Run("one that stores", func(t *testing.T) {
		in := env.In(t)
		backend := in.Backend("stored.example.com")
		namespace := in.Namespace()
		of := objects.Resource(backend.GroupVersion.WithResource("widgets")).Namespace(namespace)
		_, err := of.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": backend.GroupVersion.String(), "kind": "Widget", "metadata": map[string]any{"name": "w"},
		}}, metav1.CreateOptions{})
		must(t, err)
		if n := backend.Stored(namespace); n != 1 {
			t.Errorf("backend stores %d objects in namespace %s, want 1", n, namespace)
		}
		backend.Refuse()
		backend.WaitUnavailable()
		if _, err := of.Get(ctx, "w", metav1.GetOptions{}); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("Get while the backend refuses connections: error = %v, want ServiceUnavailable", err)
		}
		if _, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); err != nil {
			t.Errorf("List of Namespaces while the backend refuses connections failed: %v, want no error", err)
		}
		backend.Heal()
		backend.WaitAvailable()
		if _, err := of.Get(ctx, "w", metav1.GetOptions{}); err != nil {
			t.Errorf("Get after the backend healed failed: %v, want no error", err)
		}
	})
	for name, fault := range map[string]func(*apitest.Backend){
		"Hang": (*apitest.Backend).Hang, "Blackhole": (*apitest.Backend).Blackhole, "ExpireCertificate": (*apitest.Backend).ExpireCertificate,
		"ChangeAuthority": (*apitest.Backend).ChangeAuthority, "ChangeName": (*apitest.Backend).ChangeName,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backend := env.In(t).ReadOnlyBackend(strings.ToLower(name) + ".example.com")
			fault(backend)
			// A request that waits or a probe detects a server that hangs. The probe needs up to half a minute.
			waiting, cancel := context.WithCancel(t.Context())
			var request sync.WaitGroup
			request.Go(func() {
				_, _ = objects.Resource(backend.GroupVersion.WithResource("widgets")).List(waiting, metav1.ListOptions{})
			})
			backend.WaitUnavailable()
			cancel()
			request.Wait()
			backend.Heal()
			backend.WaitAvailable()
		})
	}
	for name, fault := range map[string]func(*apitest.Backend){
		"Drip": (*apitest.Backend).Drip, "ResetBodies": (*apitest.Backend).ResetBodies, "GoAway": (*apitest.Backend).GoAway,
		"GarbleDiscovery": (*apitest.Backend).GarbleDiscovery, "EmptyDiscovery": (*apitest.Backend).EmptyDiscovery,
		"EndlessOpenAPI": (*apitest.Backend).EndlessOpenAPI,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backend := env.In(t).ReadOnlyBackend(strings.ToLower(name) + ".example.com")
			fault(backend)
			if _, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
				t.Errorf("List of Namespaces while the backend has the fault %s failed: %v, want no error", name, err)
			}
			backend.Heal()
		})
	}
}

func TestEnvironmentsOnSharedStorageAreIndependent(t *testing.T) {
	t.Parallel()
	storage, err := apitest.NewSharedStorage()
	must(t, err)
	t.Cleanup(func() { must(t, storage.Close()) })
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			e := &apitest.Environment{Storage: storage}
			config, err := e.Start()
			if err != nil {
				t.Error(err)
				return
			}
			client, err := kubernetes.NewForConfig(config)
			if err == nil {
				_, err = client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, metav1.CreateOptions{})
			}
			if err != nil {
				t.Error(err)
			}
			if err := e.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestParallelServers(t *testing.T) {
	t.Parallel()
	for range 2 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			env := apitest.Start(t)
			_, err := clientOf(t, env.Config).AdmissionregistrationV1().MutatingWebhookConfigurations().Create(t.Context(),
				&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "w"}}, metav1.CreateOptions{})
			must(t, err)
		})
	}
}

func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		e := &apitest.Environment{}
		if _, err := e.Start(); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := e.Stop(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
