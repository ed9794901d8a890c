package aggregator

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
)

// An object that one replica has returned to a client is served by the other replica at once, also if etcd's events reach it
// late.
func TestObjectReturnedByOneReplicaIsServedByAll(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	sockets, err := os.MkdirTemp("", "p") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	socket, relayed := filepath.Join(sockets, "etcd"), filepath.Join(sockets, "relay")
	stopEtcd := startEtcd(t, socket)
	way := newRelay(t, relayed, socket)
	over := func(at string) func(*Config) { return func(c *Config) { c.EtcdServers = []string{"unix://" + at} } }
	dirOne := t.TempDir()
	one, stopOne := open(t, dirOne, over(socket))
	two, stopTwo := open(t, beside(t, dirOne), over(relayed))
	t.Cleanup(func() {
		for _, stop := range []func() error{stopTwo, stopOne, stopEtcd} {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	way.delay.Store(int64(150 * time.Millisecond))
	serves := func(what, path string) {
		t.Helper()
		began := time.Now()
		if code, body := get(t, two, path); code != http.StatusOK {
			t.Errorf("%s: GET %s at the second replica = %d %s, want 200", what, path, code, body)
		}
		t.Logf("%s: served after %s", what, time.Since(began).Round(time.Millisecond))
	}

	definitions := clientset.NewForConfigOrDie(one).ApiextensionsV1().CustomResourceDefinitions()
	define := func(plural, kind string) {
		t.Helper()
		crd := &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: plural + ".late.example.com"},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: "late.example.com", Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: "v1", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
				}},
			},
		}
		if _, err := definitions.Create(ctx, crd, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		await(ctx, t, "that the definition is established", func() bool {
			found, err := definitions.Get(ctx, crd.Name, metav1.GetOptions{})
			return err == nil && apihelpers.IsCRDConditionTrue(found, apiextensionsv1.Established)
		})
	}
	const objects = "/apis/late.example.com/v1/namespaces/default/"
	define("firsts", "First")
	serves("a resource of a new group", objects+"firsts")
	define("seconds", "Second")
	serves("another resource of the group", objects+"seconds")
	if code, body := get(t, two, objects+"nothings"); code != http.StatusNotFound {
		t.Errorf("GET of a resource that does not exist = %d %s, want 404", code, body)
	}
	if code, body := get(t, two, "/apis/nothing.example.com/v1/nothings"); code != http.StatusNotFound {
		t.Errorf("GET of a group that does not exist = %d %s, want 404", code, body)
	}

	port, caBundle := notesBackend(t)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "notes"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}
	if _, err := kubernetes.NewForConfigOrDie(one).CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	registrations := aggregatorclient.NewForConfigOrDie(one).ApiregistrationV1().APIServices()
	registration := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.notes.example.com"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "notes.example.com", Version: "v1", GroupPriorityMinimum: 100, VersionPriority: 100, CABundle: caBundle,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "notes", Port: &port},
		},
	}
	if _, err := registrations.Create(ctx, registration, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, "that the backend is available", func() bool {
		found, err := registrations.Get(ctx, registration.Name, metav1.GetOptions{})
		return err == nil && helper.IsAPIServiceConditionTrue(found, apiregistrationv1.Available)
	})
	serves("a new backend", "/apis/notes.example.com/v1")
}
