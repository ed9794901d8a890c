package toolclient

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := New(&rest.Config{Host: s.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func kind(group, version, kind string) *metav1.GroupVersionKind {
	return &metav1.GroupVersionKind{Group: group, Version: version, Kind: kind}
}

// documents returns the discovery documents of a server with a group that has two versions, one that is stale, a resource
// without a kind whose subresource has one, and a subresource without.
func documents() []apidiscoveryv2.APIGroupDiscovery {
	return []apidiscoveryv2.APIGroupDiscovery{
		{ObjectMeta: metav1.ObjectMeta{Name: "apps"}, Versions: []apidiscoveryv2.APIVersionDiscovery{
			{Version: "v1", Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Resources: []apidiscoveryv2.APIResourceDiscovery{
				{
					Resource: "deployments", SingularResource: "deployment", ResponseKind: kind("apps", "v1", "Deployment"), Scope: apidiscoveryv2.ScopeNamespace,
					Verbs: []string{"get", "list"}, ShortNames: []string{"deploy"}, Categories: []string{"all"},
					Subresources: []apidiscoveryv2.APISubresourceDiscovery{
						{Subresource: "scale", ResponseKind: kind("autoscaling", "v1", "Scale"), Verbs: []string{"get"}},
						{Subresource: "nothing", Verbs: []string{"get"}},
					},
				},
				{
					Resource: "parents", SingularResource: "parent", Scope: apidiscoveryv2.ScopeCluster,
					Subresources: []apidiscoveryv2.APISubresourceDiscovery{{Subresource: "child", ResponseKind: kind("apps", "v1", "Child"), Verbs: []string{"get"}}},
				},
			}},
			{Version: "v1beta1", Freshness: apidiscoveryv2.DiscoveryFreshnessStale},
		}},
		{ObjectMeta: metav1.ObjectMeta{Name: "metrics.k8s.io"}, Versions: []apidiscoveryv2.APIVersionDiscovery{
			{Version: "v1beta1", Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Resources: []apidiscoveryv2.APIResourceDiscovery{
				{Resource: "pods", SingularResource: "pod", ResponseKind: kind("metrics.k8s.io", "v1beta1", "PodMetrics"), Scope: apidiscoveryv2.ScopeNamespace, Verbs: []string{"get"}},
			}},
		}},
	}
}

func TestResourcesMatchClientGo(t *testing.T) {
	groups := documents()
	_, want, failed := discovery.SplitGroupsAndResources(apidiscoveryv2.APIGroupDiscoveryList{Items: groups})
	got := fromAggregated(groups)
	if len(got) != len(want)+len(failed) || len(failed) == 0 {
		t.Fatalf("%d group-versions, want client-go's %d and %d failed ones", len(got), len(want), len(failed))
	}
	for _, gv := range got {
		switch {
		case (gv.Err != nil) != (failed[gv.GroupVersion] != nil):
			t.Errorf("error of %s = %v, want client-go's %v", gv, gv.Err, failed[gv.GroupVersion])
		case gv.Err == nil && !reflect.DeepEqual(gv.Resources, want[gv.GroupVersion].APIResources):
			t.Errorf("resources of %s = %+v, want client-go's %+v", gv, gv.Resources, want[gv.GroupVersion].APIResources)
		}
	}
}

// older answers as a server without aggregated discovery.
func older(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/api":
		fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)
	case "/api/v1":
		fmt.Fprint(w, `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","singularName":"","namespaced":true,"kind":"Pod","verbs":["get"],"shortNames":["po"]},{"name":"pods/log","kind":"Pod","verbs":["get"]}]}`)
	case "/apis":
		fmt.Fprint(w, `{"kind":"APIGroupList","groups":[{"name":"a.example.com","versions":[{"groupVersion":"a.example.com/v1beta1","version":"v1beta1"},{"groupVersion":"a.example.com/v1","version":"v1"}],"preferredVersion":{"version":"v1"}},{"name":"dead.example.com","versions":[{"version":"v1"}]}]}`)
	case "/apis/a.example.com/v1", "/apis/a.example.com/v1beta1":
		fmt.Fprint(w, `{"kind":"APIResourceList","resources":[{"name":"widgets","singularName":"widget","kind":"Widget","verbs":["get"],"shortNames":["po"]}]}`)
	default:
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"the server is dead","reason":"ServiceUnavailable","code":503}`)
	}
}

func TestDiscoveryFallsBackToLegacyDocuments(t *testing.T) {
	all, err := serve(t, older).Discover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, gv := range all {
		got = append(got, gv.String())
		if dead := gv.Group == "dead.example.com"; dead != apierrors.IsServiceUnavailable(gv.Err) || dead != (len(gv.Resources) == 0) {
			t.Errorf("%s: resources %v, error %v; want an error only of the dead group", gv, gv.Resources, gv.Err)
		}
	}
	if want := "v1 a.example.com/v1 a.example.com/v1beta1 dead.example.com/v1"; strings.Join(got, " ") != want {
		t.Errorf("group-versions = %v, want %s", got, want)
	}
}

func TestDiscoveryReadsTheAggregatedDocument(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api" { // one that is refused is not there
			w.WriteHeader(http.StatusForbidden)
			return
		}
		if !strings.Contains(r.Header.Get("Accept"), "g=apidiscovery.k8s.io") {
			t.Errorf("Accept = %q, want aggregated discovery", r.Header.Get("Accept"))
		}
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		if err := json.NewEncoder(w).Encode(apidiscoveryv2.APIGroupDiscoveryList{Items: documents()}); err != nil {
			t.Error(err)
		}
	})
	all, err := c.Discover(t.Context())
	if err != nil || !reflect.DeepEqual(all, fromAggregated(documents())) {
		t.Errorf("Discover = %+v, %v; want the group-versions of the documents", all, err)
	}
}

func TestDiscoveryOfDeadServerReturnsError(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	if all, err := c.Discover(t.Context()); err == nil {
		t.Errorf("Discover of a dead server = %v, want an error", all)
	}
}

func TestResourceNamesAreResolved(t *testing.T) {
	all := append([]GroupVersion{{GroupVersion: schema.GroupVersion{Version: "v1"}, Resources: []metav1.APIResource{
		{Name: "pods", SingularName: "pod", Kind: "Pod", ShortNames: []string{"po"}}, {Name: "pods/log", Kind: "Log"},
	}}}, fromAggregated(documents())...)
	for _, c := range []struct{ word, group, want string }{
		{"pods", "", "pods"},
		{"pod", "", "pods"},
		{"po", "", "pods"},
		{"Pod", "", "pods"},
		{"pods", "metrics.k8s.io", "pods.metrics.k8s.io"},
		{"pods", "metrics", "pods.metrics.k8s.io"},
		{"deploy", "", "deployments.apps"},
		{"deploy", "apps", "deployments.apps"},
		{"podmetrics", "", "pods.metrics.k8s.io"},
		{"pods/log", "", ""},
		{"log", "", ""},
		{"deploy", "metrics.k8s.io", ""},
		{"nothings", "", ""},
	} {
		gvr, found := FindResource(all, c.word, c.group)
		if got := gvr.GroupResource().String(); found != (c.want != "") || found && got != c.want {
			t.Errorf("%s of group %q is %s (%v), want %s", c.word, c.group, got, found, c.want)
		}
	}
}

func TestObjectsAreSentAndRead(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.Method + " " + r.URL.Path {
		case "GET /api/v1/namespaces/a/configmaps/x":
			fmt.Fprint(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x"},"data":{"k":"v"}}`)
		case "GET /apis/rbac.authorization.k8s.io/v1/roles":
			fmt.Fprint(w, `{"kind":"RoleList","apiVersion":"rbac.authorization.k8s.io/v1","items":[{"metadata":{"name":"r","namespace":"n"}}]}`)
		case "PUT /api/v1/namespaces/gone/finalize":
			fmt.Fprint(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"gone"}}`)
		case "POST /apis/authorization.k8s.io/v1/subjectaccessreviews":
			var sent authorizationv1.SubjectAccessReview
			if err := json.NewDecoder(r.Body).Decode(&sent); err != nil || sent.Kind != "SubjectAccessReview" || sent.Spec.User != "alice" {
				t.Errorf("request of Review = %+v, %v; want a SubjectAccessReview of alice", sent, err)
			}
			sent.Status.Allowed = true
			_ = json.NewEncoder(w).Encode(sent)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"there is no %s"}`, r.URL.Path)
		}
	})
	ctx := t.Context()
	if o, err := c.ConfigMaps("a").Get(ctx, "x", metav1.GetOptions{}); err != nil || o.Data["k"] != "v" {
		t.Errorf("Get of a ConfigMap = %+v, %v; want its data", o, err)
	}
	if l, err := c.Roles("").List(ctx, metav1.ListOptions{}); err != nil || len(l.Items) != 1 || l.Items[0].Namespace != "n" {
		t.Errorf("List of Roles = %+v, %v; want one in the namespace n", l, err)
	}
	if err := c.Namespaces().Finalize(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}); err != nil {
		t.Error(err)
	}
	if r, err := c.Review(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "alice"}}); err != nil || !r.Status.Allowed {
		t.Errorf("Review = %+v, %v; want allowed", r, err)
	}
	for what, err := range map[string]error{
		"an APIService":       second(c.APIServices().Get(ctx, "v1.x", metav1.GetOptions{})),
		"a Service":           second(c.Services("a").Get(ctx, "x", metav1.GetOptions{})),
		"an EndpointSlice":    second(c.EndpointSlices("a").Get(ctx, "x", metav1.GetOptions{})),
		"ClusterRoleBindings": second(c.ClusterRoleBindings().List(ctx, metav1.ListOptions{})),
		"a path":              c.REST().Get().AbsPath("/debug/nothing").Do(ctx).Error(),
	} {
		if !apierrors.IsNotFound(err) {
			t.Errorf("%s: error = %v, want NotFound", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// A program that imports this package for its size must not link all kinds through another import.
func TestKubectlPorticoRegistersFewKinds(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "portico.dev/cmd/kubectl-portico").Output()
	if err != nil {
		t.Fatal(err)
	}
	linked := strings.Fields(string(out))
	if len(linked) < 300 {
		t.Fatalf("%d packages are linked, want at least 300", len(linked))
	}
	for _, name := range linked {
		if name == "k8s.io/client-go/kubernetes/scheme" || strings.HasPrefix(name, "k8s.io/client-go/kubernetes/typed/") {
			t.Errorf("kubectl-portico imports %s with every kind of every group, want no such import: see `go mod why`", name)
		}
	}
}
