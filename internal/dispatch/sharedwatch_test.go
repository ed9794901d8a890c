package dispatch

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/filters"
	"portico.dev/internal/proxy"
	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routes/v1alpha1"
	"portico.dev/internal/routetable"
)

// A57: each unknown parameter resulted in another key, and therefore in another watch and list of the backend.
func TestA57UnknownParametersStartNoSharedWatch(t *testing.T) {
	info := &apirequest.RequestInfo{Verb: "watch", APIPrefix: "apis", APIGroup: "example.com", APIVersion: "v1", Namespace: "a", Resource: "widgets"}
	const path = "/apis/example.com/v1/namespaces/a/widgets?watch=true"
	keys := map[string]bool{}
	shared := 0
	for i := range 100 {
		for _, query := range []string{
			"", fmt.Sprintf("&resourceVersion=%d", i), fmt.Sprintf("&timeoutSeconds=%d", i), fmt.Sprintf("&timeout=%ds", i), "&pretty=" + strings.Repeat("x", i),
			"&labelSelector=" + strings.Repeat("a,", i) + "a", "&fieldSelector=" + strings.Repeat(",", i),
		} {
			q, ok := SharedWatchOf(&filters.Request{Request: httptest.NewRequest(http.MethodGet, path+query, nil), Info: info})
			if !ok {
				t.Fatalf("SharedWatchOf a watch with %q = not shared, want shared", query)
			}
			keys[q.Path+"?"+q.Query] = true
		}
		for _, query := range []string{
			fmt.Sprintf("&junk=%d", i), fmt.Sprintf("&j%d", i), fmt.Sprintf("&Watch=%d", i), fmt.Sprintf("&limit=%d", i), fmt.Sprintf("&continue=%d", i),
			fmt.Sprintf("&watch=%d", i+1), fmt.Sprintf("&labelSelector=a&labelSelector=%d", i),
		} {
			if _, ok := SharedWatchOf(&filters.Request{Request: httptest.NewRequest(http.MethodGet, path+query, nil), Info: info}); ok {
				shared++
			}
		}
	}
	if len(keys) != 2 || shared != 0 { // with the label selector, and without
		t.Errorf("%d keys of equal selections and %d shared watches with unknown parameters, want 2 and 0", len(keys), shared)
	}
}

// TestA69ResponsesAreNotSharedBetweenClusters checks that responses which all callers share are not shared with callers in another
// cluster: the extension server may respond with the objects of the cluster.
func TestA69ResponsesAreNotSharedBetweenClusters(t *testing.T) {
	info := &apirequest.RequestInfo{IsResourceRequest: true, Verb: "watch", APIPrefix: "apis", APIGroup: "example.com", APIVersion: "v1", Resource: "widgets"}
	route := &routetable.Route{Routing: &routing.Route{Backends: []v1alpha1.APIRouteBackend{{Name: "b"}}}}
	choice := &routing.Choice{Shared: &routing.SharedReads{AllCallers: true}}
	keys := map[string]bool{}
	for _, cluster := range []string{"", "a", "b"} {
		for _, name := range []string{"alice", "bob"} {
			u := &user.DefaultInfo{Name: name}
			if cluster != "" {
				u.Extra = map[string][]string{filters.ClusterExtra: {cluster}}
			}
			r := &filters.Request{Request: httptest.NewRequest(http.MethodGet, "/apis/example.com/v1/widgets?watch=true", nil), Info: info, User: u}
			var k sharedKey
			k.set(r, route, choice, proxy.New(proxy.Config{}))
			keys[string(k.text)] = true
			if _, shared := sharedWatchOf(r); shared != (cluster == "") {
				t.Errorf("watch of %s in cluster %q is shared: %t, want %t", name, cluster, shared, cluster == "")
			}
		}
	}
	if len(keys) != 3 {
		t.Errorf("%d keys of reads for the front door and two clusters, want 3", len(keys))
	}
}
