package dispatch

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/dispatch/dispatchtest"
	"portico.dev/internal/metrics"
	"portico.dev/internal/replicas/peers"
	"portico.dev/internal/routes/mirror"
	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routes/sharedreads"
	"portico.dev/internal/routes/sharedwatch"
	"portico.dev/internal/routetable"
	"portico.dev/internal/transport"
)

// everything is an APIRoute that uses each capability of a rule with one backend.
const everything = `
metadata: {name: v1.example.com, uid: u, generation: 1}
spec:
  backends: [{name: first}, {name: second, service: {namespace: ns, name: second}}, {name: spare, service: {namespace: ns, name: spare}}]
  rules:
  - name: all
    readOnly: READONLY
    backendRefs: [{name: first, weight: 0}, {name: second, weight: 100}]
    fallback: spare
    sharedReads: {maxAge: 1m, callers: All, watches: true}
    mirror: {backend: first}
    rollback: {errorPercent: 50, minRequests: 4, interval: 1m}
`

func everythingFor(t *testing.T, set *transport.Set, readOnly bool, handlers map[string]http.Handler) *routetable.Table {
	t.Helper()
	return dispatchtest.Table(t, set, strings.Replace(everything, "READONLY", fmt.Sprint(readOnly), 1), handlers)
}

func saying(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(text))
	})
}

// The documentation of compile lists the handlers in the order in which they are nested.
func TestHandlersAreNestedInDocumentedOrder(t *testing.T) {
	set := newSet(t)
	table := everythingFor(t, set, true, map[string]http.Handler{"first": saying("{}"), "second": saying("{}"), "spare": saying("{}")})
	route, _ := table.Lookup(routing.GroupVersionOf("v1.example.com"))
	route.NeverAvailable, route.Condition.Status = true, apiregistrationv1.ConditionFalse // so that it has catchUp; its parts are available
	c := configOf(table)
	c.CatchUp = func(context.Context, schema.GroupVersion, string) bool { return false }
	c.SharedReads, c.SharedWatches, c.Mirror = sharedreads.New(sharedreads.Config{}), &sharedwatch.Watches{}, &mirror.Mirror{}
	got := nesting(New(c).compile(route).Handler)
	local := &routetable.Route{GroupVersion: route.GroupVersion, Local: true, Condition: dispatchtest.Condition(apiregistrationv1.ConditionTrue, "Local", "")}
	c.Settle, c.CatchUp = func(context.Context, schema.GroupVersion) {}, nil
	if of := nesting(New(c).compile(local).Handler); !slices.Equal(of, []string{"settle", "expirePositions", "internalHandler"}) {
		t.Errorf("handlers of a local group = %v, want [settle expirePositions internalHandler]", of)
	}
	got = slices.Insert(got, 1, "settle")
	source, err := os.ReadFile("compile.go")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, line := range regexp.MustCompile(`(?m)^//\t(\w+) `).FindAllStringSubmatch(string(source), -1) {
		want = append(want, line[1])
	}
	if !slices.Equal(got, want) {
		t.Errorf("nested handlers = %v, want the documented order %v", got, want)
	}
}

// nesting returns the type names of nested handlers. Where a handler has several successors, it follows the second rule's choice.
func nesting(h Handler) []string {
	var names []string
	for v := reflect.ValueOf(h); ; {
		v = reflect.Indirect(v)
		names = append(names, v.Type().Name())
		switch {
		case v.Type().Name() == "remote":
			return names
		case v.FieldByName("resources").IsValid():
			v = v.FieldByName("resources")
		case v.FieldByName("choices").IsValid():
			v = v.FieldByName("choices").Index(1)
		case v.FieldByName("next").IsValid():
			v = v.FieldByName("next")
		default:
			return names
		}
		v = v.Elem()
	}
}

// copies is a Mirror that sends one copy at a time until the test ends, and the results of the copies.
type copies struct {
	*mirror.Mirror
	metrics *metrics.Mirror
}

func newCopies(t *testing.T) *copies {
	t.Helper()
	c := &copies{metrics: metrics.NewMirror(prometheus.NewRegistry())}
	c.Mirror = mirror.New(mirror.Config{Metrics: c.metrics, MaxInFlight: 1})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

// compared waits until all copies so far were sent, and returns the number of compared responses.
func (c *copies) compared(t *testing.T) int {
	t.Helper()
	sent := make(chan struct{})
	last := c.Begin("v1.example.com", "first", "/last")
	last.Send = func(context.Context, http.ResponseWriter) error { close(sent); return mirror.ErrObsolete }
	c.End(last)
	select {
	case <-sent:
	case <-time.After(time.Minute):
		t.Fatal("the last copy was not sent within a minute, want all copies sent")
	}
	n := 0.0
	for _, result := range []string{metrics.MirrorSame, metrics.MirrorStatus, metrics.MirrorBody} {
		n += testutil.ToFloat64(c.metrics.Reads.WithLabelValues("v1.example.com", "first", result))
	}
	return int(n)
}

// Each case fails if the two handlers in its name change places.
func TestHandlerOrderChangesResult(t *testing.T) {
	gv := routing.GroupVersionOf("v1.example.com")
	t.Run("sharedRead around errorRate: a response that is shared is counted once", func(t *testing.T) {
		set := newSet(t)
		table := everythingFor(t, set, false, map[string]http.Handler{"first": saying("{}"), "second": saying("{}"), "spare": saying("{}")})
		c := configOf(table)
		c.SharedReads = sharedreads.New(sharedreads.Config{})
		h := New(c).Lookup(gv)
		for range 3 {
			ask(t, h, http.MethodGet, widgets)
		}
		route, _ := table.Lookup(gv)
		if found, _ := route.Routing.Choices()[1].ErrorRate.Count(time.Now(), true); found.Requests != 2 {
			t.Errorf("%d requests were counted before the last one, want 1", found.Requests-1)
		}
	})
	t.Run("errorRate around remote: what the fallback answers is a failure of the backend", func(t *testing.T) {
		set := newSet(t)
		broken := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		table := everythingFor(t, set, false, map[string]http.Handler{"first": saying("first"), "second": broken, "spare": saying("spare")})
		gone := 0
		c := configOf(table)
		c.RollBack = func(*routetable.Route, string, int, routing.Errors) { gone++ }
		h := New(c).Lookup(gv)
		for range 4 {
			if w, r := ask(t, h, http.MethodGet, widgets); w.Body.String() != "spare" || !r.Record.Elsewhere {
				t.Errorf("response of the broken backend = %d %s with Elsewhere %t, want spare and true", w.Code, w.Body, r.Record.Elsewhere)
			}
		}
		if gone != 1 {
			t.Errorf("%d rollbacks after four failures, want 1", gone)
		}
	})
	t.Run("mirrored around remote: what the fallback answers is compared with nothing", func(t *testing.T) {
		set := newSet(t)
		broken := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		table := everythingFor(t, set, false, map[string]http.Handler{"first": saying("{}"), "second": broken, "spare": saying("{}")})
		c := configOf(table)
		copies := newCopies(t)
		c.Mirror = copies.Mirror
		ask(t, New(c).Lookup(gv), http.MethodGet, widgets)
		if n := copies.compared(t); n != 0 {
			t.Errorf("%d copies were compared with a response of the fallback, want 0", n)
		}
	})
	t.Run("sharedRead around mirrored: one copy of what is sent once", func(t *testing.T) {
		set := newSet(t)
		table := everythingFor(t, set, false, map[string]http.Handler{"first": saying("{}"), "second": saying("{}"), "spare": saying("{}")})
		c := configOf(table)
		copies := newCopies(t)
		c.Mirror, c.SharedReads = copies.Mirror, sharedreads.New(sharedreads.Config{})
		h := New(c).Lookup(gv)
		for range 3 {
			ask(t, h, http.MethodGet, widgets)
		}
		if n := copies.compared(t); n != 1 {
			t.Errorf("%d copies of three shared reads were compared, want 1", n)
		}
	})
	t.Run("namedBackend around readOnly: who copies objects writes while others may not", func(t *testing.T) {
		set := newSet(t)
		table := everythingFor(t, set, true, map[string]http.Handler{"first": saying("first"), "second": saying("second"), "spare": saying("spare")})
		c := configOf(table)
		c.Authorizer = everybody{}
		h := New(c).Lookup(gv)
		if w, _ := ask(t, h, http.MethodPost, widgets); w.Code != http.StatusServiceUnavailable {
			t.Errorf("POST to a read-only collection = %d %s, want 503", w.Code, w.Body)
		}
		if w, _ := ask(t, h, http.MethodPost, widgets, BackendHeader, "first"); w.Code != http.StatusOK || w.Body.String() != "first" {
			t.Errorf("POST to a named backend = %d %s, want 200 first", w.Code, w.Body)
		}
	})
	t.Run("endToEnd around namedBackend: a field that concerns the connection names no backend", func(t *testing.T) {
		set := newSet(t)
		table := everythingFor(t, set, false, map[string]http.Handler{"first": saying("first"), "second": saying("second"), "spare": saying("spare")})
		w, _ := ask(t, New(configOf(table)).Lookup(gv), http.MethodGet, widgets, BackendHeader, "first", "Connection", BackendHeader)
		if w.Code != http.StatusOK || w.Body.String() != "second" {
			t.Errorf("GET with a nominated %s = %d %s, want 200 second", BackendHeader, w.Code, w.Body)
		}
	})
	t.Run("expirePositions around sharedWatch: a position of a merged collection is no version", func(t *testing.T) {
		set := newSet(t)
		table := everythingFor(t, set, false, map[string]http.Handler{"first": saying("{}"), "second": saying("{}"), "spare": saying("{}")})
		w, _ := ask(t, New(configOf(table)).Lookup(gv), http.MethodGet, widgets+"?watch=true&resourceVersion=merged.x")
		if w.Code != http.StatusGone {
			t.Errorf("watch from a merged position = %d %s, want 410", w.Code, w.Body)
		}
	})
	t.Run("catchUp around settle: the document is that of who serves the group-version in the end", func(t *testing.T) {
		var order []string
		c := configOf(routetable.NewTable(nil, true))
		c.CatchUp = func(context.Context, schema.GroupVersion, string) bool { order = append(order, "catchUp"); return true }
		c.Settle = func(context.Context, schema.GroupVersion) { order = append(order, "settle") }
		if w, _ := ask(t, New(c).Lookup(gv), http.MethodGet, "/apis/example.com/v1"); w.Code != http.StatusNotFound || !slices.Equal(order, []string{"catchUp", "settle"}) {
			t.Errorf("GET of the document = %d after %v, want 404 after catchUp and settle", w.Code, order)
		}
	})
	t.Run("replicas before the fallback", func(t *testing.T) {
		set := newSet(t)
		broken := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		table := everythingFor(t, set, false, map[string]http.Handler{"first": saying("first"), "second": broken, "spare": saying("spare")})
		c := configOf(table)
		c.Replicas = replicas{backend: dispatchtest.Backend(t, set, "replica", saying("replica"))}
		c.ReachedBy = func(*routetable.Route) []string { return []string{"b"} }
		c.PeerMetrics = metrics.NewPeers(prometheus.NewRegistry())
		if w, _ := ask(t, New(c).Lookup(gv), http.MethodGet, widgets); w.Body.String() != "replica" {
			t.Errorf("GET with a replica and a fallback = %d %s, want replica", w.Code, w.Body)
		}
	})
}

// A route that is also in the next table keeps its handlers.
func TestUnchangedRouteKeepsItsHandlers(t *testing.T) {
	set := newSet(t)
	one := everythingFor(t, set, false, map[string]http.Handler{"first": saying("1"), "second": saying("1")})
	kept, _ := one.Lookup(routing.GroupVersionOf("v1.example.com"))
	added := &routetable.Route{GroupVersion: schema.GroupVersion{Group: "other.example.com", Version: "v1"}, Name: "v1.other.example.com"}
	table := one
	c := configOf(nil)
	c.Routes = func() *routetable.Table { return table }
	h := New(c)
	before := h.Lookup(kept.GroupVersion)
	table = routetable.NewTable([]*routetable.Route{kept, added}, true)
	if h.Lookup(kept.GroupVersion) != before {
		t.Errorf("Lookup(%s) with the next table returned another handler, want the same", kept.GroupVersion)
	}
	if w, _ := ask(t, h.Lookup(added.GroupVersion), http.MethodGet, "/apis/other.example.com/v1/things"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("GET from the new route = %d, want 503", w.Code)
	}
	table = routetable.NewTable([]*routetable.Route{added}, true)
	if w, _ := ask(t, h.Lookup(kept.GroupVersion), http.MethodGet, widgets); w.Code != http.StatusNotFound {
		t.Errorf("GET from the removed route = %d, want 404", w.Code)
	}
	if n := testing.AllocsPerRun(100, func() { h.Lookup(added.GroupVersion) }); n != 0 {
		t.Errorf("allocations of a Lookup = %v, want 0", n)
	}
}

// replicas sends every request to one backend.
type replicas struct {
	backend *transport.Backend
	serving []string
	err     error
}

func (s replicas) Backend([]string) (*transport.Backend, error) { return s.backend, s.err }
func (s replicas) Serving(schema.GroupVersion) []string         { return s.serving }

func (s replicas) State(r *http.Request, u user.Info) (string, error) {
	return r.Method + " of " + u.GetName(), nil
}

var _ Replicas = (*peers.Peers)(nil)

// everybody allows every request.
type everybody struct{}

func (everybody) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}
