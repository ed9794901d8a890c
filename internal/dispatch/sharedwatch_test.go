package dispatch

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/filters"
)

// A57: each unknown parameter resulted in another key, and therefore in another watch and list of the backend.
func TestA57UnknownParametersStartNoSharedWatch(t *testing.T) {
	info := &apirequest.RequestInfo{Verb: "watch", APIGroup: "example.com", APIVersion: "v1", Namespace: "a", Resource: "widgets"}
	const path = "/apis/example.com/v1/namespaces/a/widgets?watch=true"
	keys := map[string]bool{}
	shared := 0
	for i := range 100 {
		for _, query := range []string{
			"", fmt.Sprintf("&resourceVersion=%d", i), fmt.Sprintf("&timeoutSeconds=%d", i), fmt.Sprintf("&timeout=%ds", i), "&pretty=" + strings.Repeat("x", i),
			"&labelSelector=" + strings.Repeat("a,", i) + "a", "&fieldSelector=" + strings.Repeat(",", i),
		} {
			q, ok := sharedWatchOf(&filters.Request{Request: httptest.NewRequest(http.MethodGet, path+query, nil), Info: info})
			if !ok {
				t.Fatalf("sharedWatchOf a watch with %q = not shared, want shared", query)
			}
			keys[q.Path+"?"+q.Query] = true
		}
		for _, query := range []string{
			fmt.Sprintf("&junk=%d", i), fmt.Sprintf("&j%d", i), fmt.Sprintf("&Watch=%d", i), fmt.Sprintf("&limit=%d", i), fmt.Sprintf("&continue=%d", i),
			fmt.Sprintf("&watch=%d", i+1), fmt.Sprintf("&labelSelector=a&labelSelector=%d", i),
		} {
			if _, ok := sharedWatchOf(&filters.Request{Request: httptest.NewRequest(http.MethodGet, path+query, nil), Info: info}); ok {
				shared++
			}
		}
	}
	if len(keys) != 2 || shared != 0 { // with the label selector, and without
		t.Errorf("%d keys of equal selections and %d shared watches with unknown parameters, want 2 and 0", len(keys), shared)
	}
}
