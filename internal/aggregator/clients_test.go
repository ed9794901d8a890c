package aggregator

import (
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/auth/rbac"
)

func TestInformersDropUnusedFields(t *testing.T) {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, UID: "u", Labels: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}
	}
	transform := trimInformerObjects()
	pass := func(obj any) {
		t.Helper()
		if out, err := transform(obj); err != nil || out != obj {
			t.Fatalf("transform = %v, %v; want the same object", out, err)
		}
	}
	pod := &corev1.Pod{ObjectMeta: meta("p")}
	pass(pod)
	if pod.ManagedFields != nil || pod.UID != "u" || pod.Labels["a"] != "b" {
		t.Errorf("metadata of a transformed Pod = %+v, want no managed fields, the UID and the labels", pod.ObjectMeta)
	}
	if out, err := transform(&rbacv1.RoleBinding{ObjectMeta: meta("b")}); err != nil {
		t.Error(err)
	} else if _, ok := out.(*rbac.Binding); !ok {
		t.Errorf("type of a transformed RoleBinding = %T, want *rbac.Binding", out)
	}
	pass(cache.DeletedFinalStateUnknown{Key: "k", Obj: "what was deleted is no object"})

	bundle := func(says string) *apiregistrationv1.APIService {
		a := &apiregistrationv1.APIService{ObjectMeta: meta("v1"), Spec: apiregistrationv1.APIServiceSpec{CABundle: []byte(says)}}
		pass(a)
		return a
	}
	one, two, three := bundle("one"), bundle("two"), bundle("one")
	if &one.Spec.CABundle[0] != &three.Spec.CABundle[0] {
		t.Error("two equal CA bundles have two copies, want one")
	}
	if string(two.Spec.CABundle) != "two" || string(one.Spec.CABundle) != "one" {
		t.Errorf("CA bundles = %q and %q, want one and two", one.Spec.CABundle, two.Spec.CABundle)
	}
	if none := bundle(""); len(none.Spec.CABundle) != 0 {
		t.Errorf("empty CA bundle became %q, want it empty", none.Spec.CABundle)
	}
	for n := range 100 { // far more than the table holds
		says := string(rune('A' + n%50))
		if a := bundle(says); string(a.Spec.CABundle) != says {
			t.Fatalf("CA bundle %q became %q, want no change", says, a.Spec.CABundle)
		}
	}
}

func TestDeletionsAcceptJSON(t *testing.T) {
	asked := map[string]string{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked[r.Method] = r.Header.Get("Accept")
		w.WriteHeader(http.StatusNotFound)
	}))
	defer s.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client, err := metadata.NewForConfig(&rest.Config{Host: s.URL, Transport: jsonDeletions(transport)})
	if err != nil {
		t.Fatal(err)
	}
	things := client.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"})
	_ = things.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}) // all of them end with 404
	_, _ = things.List(t.Context(), metav1.ListOptions{})
	if got := asked[http.MethodDelete]; got != "application/json" {
		t.Errorf("Accept of DeleteCollection = %q, want application/json", got)
	}
	if got := asked[http.MethodGet]; got == "application/json" || got == "" {
		t.Errorf("Accept of List = %q, want protobuf first", got)
	}
}
