package aggregator

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	"sigs.k8s.io/yaml"
)

func (e *garbageEnv) createNamespace(name string) {
	e.t.Helper()
	_, err := e.client.CoreV1().Namespaces().Create(e.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	e.must(err)
}

// namespaceCondition returns the message of a condition that is True, or "".
func (e *garbageEnv) namespaceCondition(name string, kind corev1.NamespaceConditionType) string {
	e.t.Helper()
	ns, err := e.client.CoreV1().Namespaces().Get(e.ctx, name, metav1.GetOptions{})
	e.must(err)
	for _, c := range ns.Status.Conditions {
		if c.Type == kind && c.Status == corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

// deleteNamespace waits until the namespace does not exist.
func (e *garbageEnv) deleteNamespace(name string) {
	e.t.Helper()
	if err := e.client.CoreV1().Namespaces().Delete(e.ctx, name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		e.must(err)
	}
	e.until("namespace "+name+" is deleted", func() bool {
		_, err := e.client.CoreV1().Namespaces().Get(e.ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// registerService creates an APIService for a Service of the namespace default.
func (e *garbageEnv) registerService(group, version, service string, port int32, caBundle []byte) {
	e.t.Helper()
	_, err := e.apiServices().Create(e.ctx, &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: version + "." + group},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: group, Version: version, GroupPriorityMinimum: 100, VersionPriority: 100, CABundle: caBundle,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: service, Port: &port},
		},
	}, metav1.CreateOptions{})
	e.must(err)
}

func (e *garbageEnv) apiServices() apiregistrationclient.APIServiceInterface {
	return aggregatorclient.NewForConfigOrDie(e.config).ApiregistrationV1().APIServices()
}

// A cluster that applied the manifests of metrics-server and never ran its pods.
func TestUnavailableMetricsServerDoesNotBlockNamespaces(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	e, stop := openGarbageEnv(t, t.TempDir())
	for _, group := range []string{"metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"} {
		e.registerService(group, "v1beta1", "metrics", 443, nil)
	}
	e.createNamespace("first")
	e.deleteNamespace("first")

	_, err := e.apiServices().Patch(e.ctx, "v1beta1.metrics.k8s.io", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"portico.dev/non-persistent":"false"}}}`), metav1.PatchOptions{})
	e.must(err)
	e.createNamespace("second")
	e.must(e.client.CoreV1().Namespaces().Delete(e.ctx, "second", metav1.DeleteOptions{}))
	e.until("namespace second waits for the one with the annotation", func() bool {
		message := e.namespaceCondition("second", corev1.NamespaceDeletionDiscoveryFailure)
		return strings.Contains(message, "1 failing") && strings.Contains(message, "v1beta1.metrics.k8s.io is not available")
	})
	_, err = e.apiServices().Patch(e.ctx, "v1beta1.metrics.k8s.io", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"portico.dev/non-persistent":null}}}`), metav1.PatchOptions{})
	e.must(err)
	e.deleteNamespace("second")
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// boatsServer is an extension server of the group-version of boatsDefinition. It has no objects.
func boatsServer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	body := `{"kind":"BoatList","apiVersion":"sea.example.com/v1","metadata":{"resourceVersion":"7"},"items":[]}`
	switch {
	case r.URL.Path == "/apis/sea.example.com/v1":
		body = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"sea.example.com/v1","resources":[` +
			`{"name":"boats","singularName":"boat","namespaced":true,"kind":"Boat","verbs":["get","list","delete"]}]}`
	case !strings.HasSuffix(r.URL.Path, "/boats"):
		w.WriteHeader(http.StatusNotFound)
		body = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"not found",` +
			`"details":{"group":"sea.example.com","kind":"boats","name":"` + r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:] + `"}}`
	}
	_, _ = w.Write([]byte(body))
}

// A custom resource is hidden by an APIService, its namespace is deleted, and then the APIService
// (kyverno/reports-server#249).
func TestHiddenCustomResourceDoesNotReappear(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	e, stop := openGarbageEnv(t, t.TempDir())
	crd := &apiextensionsv1.CustomResourceDefinition{}
	e.must(yaml.UnmarshalStrict([]byte(boatsDefinition), crd))
	_, err := clientset.NewForConfigOrDie(e.config).ApiextensionsV1().CustomResourceDefinitions().Create(e.ctx, crd, metav1.CreateOptions{})
	e.must(err)
	client := dynamic.NewForConfigOrDie(e.config).Resource(boats)
	create := func(namespace, name string, owners ...metav1.OwnerReference) {
		e.until("boat "+name+" is created", func() bool {
			o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "sea.example.com/v1", "kind": "Boat"}}
			o.SetName(name)
			o.SetOwnerReferences(owners)
			_, err := client.Namespace(namespace).Create(e.ctx, o, metav1.CreateOptions{})
			return err == nil
		})
	}
	e.createNamespace("harbour")
	create("harbour", "hidden")
	create("default", "owned", e.configMap("owner"))
	create("default", "kept")

	port, caBundle := serveTLS(t, http.HandlerFunc(boatsServer))
	_, err = e.client.CoreV1().Services("default").Create(e.ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "notes"}, // the name in the certificate
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	e.must(err)
	const name = "v1.sea.example.com"
	e.until("the APIService of the definition is replaced", func() bool {
		object, err := e.apiServices().Get(e.ctx, name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		object.Labels, object.Spec.CABundle = nil, caBundle
		object.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: "default", Name: "notes", Port: &port}
		_, err = e.apiServices().Update(e.ctx, object, metav1.UpdateOptions{})
		return err == nil
	})
	e.until("the extension server hides the custom resources", func() bool {
		list, err := client.Namespace("").List(e.ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 0 && list.GetResourceVersion() == "7"
	})

	e.deleteNamespace("harbour")
	e.delete("owner", metav1.DeletePropagationBackground)
	e.must(e.apiServices().Delete(e.ctx, name, metav1.DeleteOptions{}))
	e.until("the custom resources are served again, and the one whose owner was deleted is not among them", func() bool {
		list, err := client.Namespace("").List(e.ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 1 && list.Items[0].GetName() == "kept"
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
}
