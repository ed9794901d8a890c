package dispatch

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/dispatch/dispatchtest"
	"portico.dev/internal/routetable"
)

// remoteRoute returns a route to a backend.
func remoteRoute(t *testing.T, h http.Handler, o routetable.Options) *routetable.Route {
	t.Helper()
	return &routetable.Route{
		GroupVersion: exampleV1, Name: "v1.example.com", Options: o, Backend: dispatchtest.Backend(t, newSet(t), "backend", h),
		Condition: dispatchtest.Condition(apiregistrationv1.ConditionTrue, "Passed", ""),
	}
}

// ignoring lists the resources whose servers ignore requests for initial events.
type ignoring []string

func (i ignoring) Rejects(of schema.GroupVersionResource) bool {
	return slices.Contains(i, of.Resource+"."+of.Version+"."+of.Group)
}

func TestInitialEventsAreRejectedForUnsupportedResource(t *testing.T) {
	const asks = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	for name, c := range map[string]struct {
		option routetable.InitialEvents
		target string
		code   int
	}{
		"a server that ignores the wish":        {routetable.InitialEventsAuto, widgets + asks, 422},
		"another resource":                      {routetable.InitialEventsAuto, "/apis/example.com/v1/gadgets" + asks, 200},
		"a watch without the wish":              {routetable.InitialEventsAuto, widgets + "?watch=true", 200},
		"an APIService that passes the wish on": {routetable.InitialEventsPass, widgets + asks, 200},
		"an APIService that rejects it":         {routetable.InitialEventsReject, "/apis/example.com/v1/gadgets" + asks, 422},
	} {
		config := configOf(routetable.NewTable([]*routetable.Route{remoteRoute(t, saying(""), routetable.Options{InitialEvents: c.option})}, true))
		config.InitialEvents = ignoring{"widgets.v1.example.com"}
		if w, _ := ask(t, New(config).Lookup(exampleV1), http.MethodGet, c.target); w.Code != c.code {
			t.Errorf("%s: GET %s = %d %s, want %d", name, c.target, w.Code, w.Body, c.code)
		}
	}
}

func TestRemoteRequestIsRecorded(t *testing.T) {
	route := remoteRoute(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/gone") {
			w.WriteHeader(http.StatusNotFound)
		}
	}), routetable.Options{LongRunningSubresources: []string{"console"}})
	config := configOf(routetable.NewTable([]*routetable.Route{route}, true))
	config.Warning = func() string { return "of a while ago" }
	unknown := 0
	config.Unknown = func(r *routetable.Route) {
		if unknown++; r != route {
			t.Errorf("reported route without the collection = %v, want %v", r, route)
		}
	}
	h := New(config).Lookup(exampleV1)
	for name, c := range map[string]struct {
		target      string
		longRunning bool
		unknown     int
	}{
		"a list":                         {widgets, false, 0},
		"a console":                      {widgets + "/x/console", true, 0},
		"a collection that is not there": {"/apis/example.com/v1/namespaces/a/gone", false, 1},
		"an object that is not there":    {widgets + "/gone", false, 0},
	} {
		unknown = 0
		w, r := ask(t, h, http.MethodGet, c.target)
		if r.Record.ServedBy != "v1.example.com" || !r.Record.Proxied || r.Record.IsLongRunning != c.longRunning || unknown != c.unknown {
			t.Errorf("%s: record %+v with %d reports of an unknown collection, want served by v1.example.com, proxied, long-running %t and %d reports", name, r.Record, unknown, c.longRunning, c.unknown)
		}
		if got := w.Header().Get("Warning"); got != `299 - "of a while ago"` {
			t.Errorf("%s: Warning = %q, want 299 - \"of a while ago\"", name, got)
		}
		if r.Context().Err() != nil {
			t.Errorf("%s: error of the request's context after the response = %v, want nil", name, r.Context().Err())
		}
	}
}
