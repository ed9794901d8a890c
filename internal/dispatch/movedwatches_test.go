package dispatch

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"portico.dev/internal/dispatch/dispatchtest"
	"portico.dev/internal/filters"
	"portico.dev/internal/routes/merge"
	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routetable"
)

const moving = `
metadata: {name: v1.example.com, uid: u, generation: 3}
spec:
  backends: [{name: server}, {name: custom, customResources: {}}]
  rules:
  - {name: moved, matches: [{namespaces: [moved]}], backendRefs: [{name: BACKEND}]}
  - {name: rest, backendRefs: [{name: server}]}
`

// movingRoute serves the namespace moved from the given backend, and all other namespaces from the server.
func movingRoute(t *testing.T, from string, generation string) *routetable.Route {
	t.Helper()
	text := strings.NewReplacer("BACKEND", from, "generation: 3", "generation: "+generation).Replace(moving)
	table := dispatchtest.Table(t, newSet(t), text, map[string]http.Handler{"server": saying("{}"), "custom": saying("{}")})
	route, _ := table.Lookup(exampleV1)
	route.Parts[1].Local, route.Parts[1].Backend = true, nil
	return route
}

// A watch ends when its objects move. A watch that begins while the table changes is served by the new table.
func TestWatchEndsWhenItsObjectsMove(t *testing.T) {
	before, after := movingRoute(t, "server", "3"), movingRoute(t, "custom", "4")
	for name, c := range map[string]struct {
		namespace string
		next      *routetable.Route
		moves     bool
	}{
		"objects that move":  {"moved", after, true},
		"objects that stay":  {"other", after, false},
		"the same APIRoute":  {"moved", before, false},
		"another generation": {"moved", movingRoute(t, "server", "5"), false},
	} {
		t.Run(name, func(t *testing.T) {
			var watches movedWatches
			inner := &probe{serve: func(w http.ResponseWriter, r *filters.Request) {
				watches.end(routetable.NewTable([]*routetable.Route{c.next}, true))
				if moved := errors.Is(context.Cause(r.Context()), merge.ErrMoved); moved != c.moves {
					t.Errorf("watch ended with ErrMoved = %t, want %t", moved, c.moves)
				}
			}}
			h := &endMovedWatches{inner, &watches, before, func(*filters.Request) bool { return true }, func() (Handler, bool) { return nil, false }}
			ask(t, h, http.MethodGet, "/apis/example.com/v1/namespaces/"+c.namespace+"/widgets?watch=true")
			if inner.count() != 1 || len(watches.byVersion) != 0 {
				t.Errorf("%d requests to the handler and the watches %v afterwards, want 1 and none", inner.count(), watches.byVersion)
			}
		})
	}
}

func TestWatchDuringTableChangeUsesNewTable(t *testing.T) {
	var watches movedWatches
	old, latest := &probe{name: "old"}, &probe{name: "latest"}
	route := movingRoute(t, "server", "3")
	h := &endMovedWatches{old, &watches, route, func(*filters.Request) bool { return true }, func() (Handler, bool) {
		if len(watches.byVersion) != 1 {
			t.Errorf("%d registered watches when the table is compared, want 1", len(watches.byVersion))
		}
		return latest, true
	}}
	w, r := ask(t, h, http.MethodGet, widgets+"?watch=true")
	if w.Body.String() != "latest" || r.Context().Err() != nil || len(watches.byVersion) != 0 {
		t.Errorf("watch = %s with the context error %v and %d registered watches, want latest, no error and 0", w.Body, r.Context().Err(), len(watches.byVersion))
	}
	for _, target := range []string{widgets, "/apis/example.com/v1"} {
		if w, _ := ask(t, h, http.MethodGet, target); w.Body.String() != "old" {
			t.Errorf("GET %s, which is not a watch, = %s, want old", target, w.Body)
		}
	}
}

func TestMergedPositionExpiresOnUnmergedRoute(t *testing.T) {
	for query, expires := range map[string]bool{
		"":                              false,
		"?resourceVersion=17":           false,
		"?resourceVersion=merged.abc":   true,
		"?continue=merged.abc":          true,
		"?continue=eyJ2IjoibWV0YSJ9":    false,
		"?labelSelector=a%3Dmerged.abc": false,
	} {
		next := &probe{name: "{}"}
		w, _ := ask(t, &expirePositions{next}, http.MethodGet, widgets+query)
		if (w.Code == http.StatusGone) != expires || (next.count() == 0) != expires {
			t.Errorf("GET with %q = %d with %d requests to the next handler, want 410 without a request if it expires (%t)", query, w.Code, next.count(), expires)
		}
	}
	next := &probe{name: "{}"}
	if ask(t, &expirePositions{next}, http.MethodGet, widgets+"/x?resourceVersion=merged.abc"); next.count() != 1 {
		t.Errorf("%d requests to the next handler for a get, want 1", next.count())
	}
}

func TestReadOnlyRouteRejectsWrites(t *testing.T) {
	next := &probe{name: "{}"}
	h := &readOnly{next, "v1.example.com", "frozen"}
	for method, code := range map[string]int{http.MethodGet: 200, http.MethodPost: 503, http.MethodPatch: 503, http.MethodDelete: 503} {
		w, r := ask(t, h, method, widgets+map[bool]string{true: "", false: "/x"}[method == http.MethodPost])
		if w.Code != code || code == 503 && !strings.Contains(r.Record.Failure, "rule frozen of APIRoute v1.example.com") {
			t.Errorf("%s of a read-only object = %d %s, want %d", method, w.Code, w.Body, code)
		}
	}
}

// An error rate is about a backend: errors caused by a client are not counted.
func TestErrorRateIgnoresClientErrors(t *testing.T) {
	for name, c := range map[string]struct {
		code      int
		target    string
		elsewhere bool
		failed    bool
	}{
		"an answer":                        {code: 200},
		"an error of the client":           {code: 404},
		"an error of the backend":          {code: 500, failed: true},
		"too late":                         {code: 504, failed: true},
		"too late for a client's deadline": {code: 504, target: widgets + "?timeout=1s"},
		"somebody else's answer":           {code: 200, elsewhere: true, failed: true},
	} {
		route := movingRoute(t, "server", "3")
		rate := &routing.ErrorRate{Percent: 1, MinRequests: 1, Interval: 1 << 40}
		found := 0
		h := &errorRate{
			&probe{serve: func(w http.ResponseWriter, r *filters.Request) {
				r.Record.Elsewhere = c.elsewhere
				w.WriteHeader(c.code)
			}},
			func(*routetable.Route, string, int, routing.Errors) { found++ }, route, &routing.Choice{ErrorRate: rate},
		}
		target := c.target
		if target == "" {
			target = widgets
		}
		ask(t, h, http.MethodGet, target)
		if (found == 1) != c.failed {
			t.Errorf("%s: %d rollbacks, want one if it counts as a failure (%t)", name, found, c.failed)
		}
	}
}
