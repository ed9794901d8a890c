package custommetrics_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"portico.dev/internal/auth/authtest"
	"portico.dev/internal/clients/apiclient"
	"portico.dev/internal/extserver/custommetrics"
	"portico.dev/internal/extserver/hosttest"
)

const apiGroups = `{"apiVersion":"apidiscovery.k8s.io/v2","kind":"APIGroupDiscoveryList","items":[
 {"metadata":{"name":"metrics.k8s.io"},"versions":[{"version":"v1","resources":[
  {"resource":"pods","responseKind":{"kind":"PodMetrics"},"scope":"Namespaced","verbs":["list"]}]}]},
 {"metadata":{"name":"cheese.io"},"versions":[{"version":"v2","resources":[
  {"resource":"shops","responseKind":{"kind":"Shop"},"scope":"Cluster","singularResource":"shop","verbs":["get","list"]},
  {"resource":"tastings","responseKind":{"kind":"Tasting"},"scope":"Namespaced","verbs":["create"]}]}]}]}`

// fakeFrontDoor is a front door whose responses a test sets.
type fakeFrontDoor struct {
	mu     sync.Mutex
	groups string
	more   bool
	asked  []string
}

func (d *fakeFrontDoor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch r.URL.Path {
	case "/api":
		fmt.Fprint(w, `{"apiVersion":"apidiscovery.k8s.io/v2","kind":"APIGroupDiscoveryList","items":[]}`)
	case "/apis":
		fmt.Fprint(w, d.groups)
	default:
		d.asked = append(d.asked, r.URL.String())
		list := metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{
			{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, {ObjectMeta: metav1.ObjectMeta{Name: "a"}}}}
		if d.more {
			list.Continue = "next"
		}
		_ = json.NewEncoder(w).Encode(list)
	}
}

func (d *fakeFrontDoor) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

func follow(t *testing.T, d *fakeFrontDoor) *custommetrics.Objects {
	t.Helper()
	s := authtest.Serve(t, d)
	client, err := apiclient.New(&rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAData: s.RootPEM}})
	if err != nil {
		t.Fatal(err)
	}
	o := custommetrics.NewObjects(custommetrics.ObjectsConfig{Client: client, Interval: 10 * time.Millisecond})
	hosttest.Run(t, o.Run, nil)
	return o
}

func TestCatalogueFollowsDiscovery(t *testing.T) {
	d := &fakeFrontDoor{groups: `{"kind":"APIGroupList"}`}
	o := follow(t, d)
	hosttest.Eventually(t, "a front door without aggregated discovery is told", func() bool {
		return o.LastError() != nil && strings.Contains(o.LastError().Error(), "no aggregated form")
	})
	if r, ok := o.Catalogue().Lookup("", "deployment"); !ok || r.APIVersion() != "apps/v1" || r.Kind != "Deployment" || !r.Namespaced {
		t.Errorf("Lookup(\"deployment\") without discovery = %+v, %t, want the built-in apps/v1 Deployment", r, ok)
	}
	d.set(func() { d.groups = apiGroups })
	hosttest.Eventually(t, "shops are known", func() bool { _, ok := o.Catalogue().Lookup("cheese.io", "shop"); return ok })
	for name, want := range map[string]string{
		"pod": "v1 Pod true", "pods": "v1 Pod true", "ingress": "networking.k8s.io/v1 Ingress true", "ingresses": "networking.k8s.io/v1 Ingress true",
		"node": "v1 Node false", "shops": "cheese.io/v2 Shop false", "Shop": "cheese.io/v2 Shop false",
	} {
		if r, ok := o.Catalogue().Lookup("", name); !ok || fmt.Sprint(r.APIVersion(), " ", r.Kind, " ", r.Namespaced) != want {
			t.Errorf("Lookup(%q) = %+v, %t, want %s", name, r, ok, want)
		}
	}
	if _, ok := o.Catalogue().Lookup("", "tasting"); ok {
		t.Error("Lookup(\"tasting\") of a resource that cannot be listed = true, want false")
	}
	d.set(func() { d.groups = "{" })
	hosttest.Eventually(t, "the failure is told", func() bool { return o.LastError() != nil })
	if _, ok := o.Catalogue().Lookup("", "shop"); !ok {
		t.Error("Lookup(\"shop\") after discovery failed = false, want true")
	}
}

func TestNames(t *testing.T) {
	d := &fakeFrontDoor{groups: apiGroups}
	o := follow(t, d)
	pods, _ := o.Catalogue().Lookup("", "pods")
	selector := labels.SelectorFromSet(labels.Set{"app": "web"})
	for range 3 {
		names, err := o.Names(t.Context(), pods, "shop", selector)
		if err != nil || strings.Join(names, " ") != "a b" {
			t.Fatalf("Names = %v, error %v, want a b and no error", names, err)
		}
	}
	d.set(func() {
		if len(d.asked) != 1 || d.asked[0] != "/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb&limit=5000" {
			t.Errorf("requests = %v, want one list of Pods with app=web", d.asked)
		}
		d.more = true
	})
	if names, err := o.Names(t.Context(), pods, "other", selector); err == nil || !strings.Contains(err.Error(), "more than 5000") {
		t.Errorf("Names of a truncated list = %v, error %v, want an error that contains \"more than 5000\"", names, err)
	}
}
