package server

import (
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/dispatch/dispatchtest"
	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/routetable"
	"portico.dev/internal/transport"
)

func TestUnknownCollectionOfBackendIsReported(t *testing.T) {
	const group = "/apis/up.example.com/v1"
	for name, c := range map[string]struct {
		method, target string
		code           int
		told           bool
	}{
		"a list of what is not there":     {http.MethodGet, group + "/namespaces/n/foos", 404, true},
		"a creation of what is not there": {http.MethodPost, group + "/foos", 404, true},
		"an object that is not there":     {http.MethodGet, group + "/namespaces/n/foos/x", 404, false},
		"the group-version itself":        {http.MethodGet, group, 404, false},
		"a list":                          {http.MethodGet, group + "/foos", 200, false},
		"a refusal":                       {http.MethodGet, group + "/foos", 403, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench("alice *")
			set := transport.New(transport.Options{Engine: enginetest.Backend(t)})
			t.Cleanup(set.Close)
			route := &routetable.Route{
				GroupVersion: schema.GroupVersion{Group: "up.example.com", Version: "v1"}, Name: "v1.up.example.com",
				Backend:   dispatchtest.Backend(t, set, "up", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.code) })),
				Condition: dispatchtest.Condition(apiregistrationv1.ConditionTrue, "Passed", ""),
			}
			table := routetable.NewTable([]*routetable.Route{route}, true)
			told := false
			router := routerOf(table)
			router.Unknown = func(r *routetable.Route) { told = r == route }
			b.handler = router.build().ServeHTTP
			if w := b.do(t, c.method, c.target, "Test-User: alice"); w.Code != c.code {
				t.Fatalf("%s %s = %d %s, want %d", c.method, c.target, w.Code, w.Body, c.code)
			}
			if told != c.told {
				t.Errorf("%s %s reported an unknown collection = %v, want %v", c.method, c.target, told, c.told)
			}
		})
	}
}
