package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/dispatch"
	"portico.dev/internal/dispatch/dispatchtest"
	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/metrics"
	"portico.dev/internal/routes/merge"
	"portico.dev/internal/routetable"
	"portico.dev/internal/transport"
)

const storing = `
metadata: {name: v1.example.com, uid: u, generation: 3}
spec:
  backends: [{name: server}, {name: custom, customResources: {}}]
  rules:
  - {name: frozen, readOnly: true, matches: [{resources: [widgets], namespaces: [frozen]}], backendRefs: [{name: server}]}
  - {name: moved, matches: [{resources: [widgets], namespaces: [moved]}], backendRefs: [{name: custom}]}
`

// widgetsOf returns lists with a widget in each of these namespaces, and watches without an end.
func widgetsOf(who, version string, namespaces ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		name := r.Header.Get("X-Remote-User")
		if u, ok := apirequest.UserFrom(r.Context()); ok && name == "" {
			name = u.GetName()
		}
		switch {
		case r.URL.Query().Get("watch") == "true":
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/widgets"):
			var items []string
			for _, namespace := range namespaces {
				items = append(items, fmt.Sprintf(`{"metadata":{"namespace":%q,"name":"one"},"of":"%s for %s"}`, namespace, who, name))
			}
			_, _ = fmt.Fprintf(w, `{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":%q},"items":[%s]}`, version, strings.Join(items, ","))
		default:
			_, _ = fmt.Fprintf(w, `"%s %s by %s"`, r.Method, who, name)
		}
	})
}

// mayMigrate lets one user select the backend.
type mayMigrate string

// Authorize implements authorizer.Authorizer.
func (m mayMigrate) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser().GetName() == string(m) && a.GetVerb() == "migrate" && a.GetAPIGroup() == "routing.portico.dev" && a.GetResource() == "apiroutes" && a.GetName() == "v1.example.com" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// piped calls a handler instead of dialing.
type piped struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (p piped) RoundTrip(r *http.Request) (*http.Response, error) {
	reader, writer := io.Pipe()
	w := &pipeWriter{header: http.Header{}, to: writer, begun: make(chan int, 1)}
	go func() {
		p.handler.ServeHTTP(w, r)
		w.WriteHeader(http.StatusOK)
		_ = writer.Close()
	}()
	context.AfterFunc(r.Context(), func() { _ = reader.CloseWithError(r.Context().Err()) })
	return &http.Response{StatusCode: <-w.begun, Header: w.header, Body: reader}, nil
}

type pipeWriter struct {
	header http.Header
	to     *io.PipeWriter
	begun  chan int
	wrote  bool
}

func (w *pipeWriter) Header() http.Header { return w.header }

func (w *pipeWriter) WriteHeader(code int) {
	if !w.wrote {
		w.wrote = true
		w.begun <- code
	}
}

func (w *pipeWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.to.Write(b)
}

func (w *pipeWriter) Flush() { w.WriteHeader(http.StatusOK) }

func storingRouter(t *testing.T, server http.Handler) (*testRouter, *routetable.Table) {
	t.Helper()
	set := transport.New(transport.Options{Engine: enginetest.Backend(t)})
	t.Cleanup(set.Close)
	table := dispatchtest.Table(t, set, storing, map[string]http.Handler{"server": server, "custom": named("never asked")})
	route, _ := table.Lookup(schema.GroupVersion{Group: "example.com", Version: "v1"})
	route.Parts[1].Local, route.Parts[1].Backend = true, nil
	router := routerOf(table)
	router.Local = widgetsOf("custom", "7", "moved", "other")
	router.Stored = &dispatch.Stored{
		Merger: merge.New(0), InProcess: func(h http.Handler) http.RoundTripper { return piped{h} },
		CustomResource: func(r schema.GroupVersionResource) bool { return r.Resource == "widgets" },
	}
	router.Authorizer = mayMigrate("alice")
	return router, table
}

func chainOf(router *testRouter, name string) http.Handler {
	return NewInternalChain(&user.DefaultInfo{Name: name}, metrics.NewRequests(prometheus.NewRegistry()), zap.NewNop(), router.build())
}

func TestCustomResourcesShareGroupVersionWithServer(t *testing.T) {
	router, _ := storingRouter(t, widgetsOf("server", "500", "moved", "frozen", "other"))
	h := chainOf(router, "alice")
	const root = "/apis/example.com/v1"
	for name, c := range map[string]struct {
		method, path string
		code         int
		says, not    string
	}{
		"an object of the server":       {"GET", root + "/namespaces/other/widgets/one", 200, `"GET server by alice"`, ""},
		"a custom resource":             {"GET", root + "/namespaces/moved/widgets/one", 200, `"GET custom by alice"`, ""},
		"a custom resource is written":  {"PUT", root + "/namespaces/moved/widgets/one", 200, `"PUT custom by alice"`, ""},
		"one that is being copied":      {"PUT", root + "/namespaces/frozen/widgets/one", 503, "can be read only while they are being copied to another backend (rule frozen of APIRoute v1.example.com)", "server by"},
		"one that is copied is read":    {"GET", root + "/namespaces/frozen/widgets/one", 200, `"GET server by alice"`, ""},
		"all of them":                   {"GET", root + "/widgets", 200, `{"metadata":{"namespace":"moved","name":"one"},"of":"custom for alice"}`, `"other","name":"one"},"of":"custom`},
		"all of them, the others":       {"GET", root + "/widgets", 200, `{"metadata":{"namespace":"frozen","name":"one"},"of":"server for alice"}`, `"moved","name":"one"},"of":"server`},
		"those of a namespace":          {"GET", root + "/namespaces/moved/widgets", 200, `"of":"custom for alice"`, `"namespace":"other"`},
		"those of the server alone":     {"GET", root + "/namespaces/other/widgets", 200, `"resourceVersion":"500"`, "custom"},
		"a kind without a definition":   {"GET", root + "/others", 200, `"GET server by alice"`, ""},
		"a position at the server":      {"GET", root + "/namespaces/other/widgets?resourceVersion=1" + strings.Repeat("0", 56), 410, "list again", ""},
		"its version at the other":      {"GET", root + "/namespaces/moved/widgets?resourceVersion=500", 410, "list again", ""},
		"many deleted in several":       {"DELETE", root + "/widgets", 400, "name the namespace", ""},
		"the document of all resources": {"GET", root, 200, "discovery", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
			if w.Code != c.code || !strings.Contains(w.Body.String(), c.says) || c.not != "" && strings.Contains(w.Body.String(), c.not) {
				t.Errorf("%s %s = %d %s, want %d with %s and without %q", c.method, c.path, w.Code, w.Body, c.code, c.says, c.not)
			}
			if w.Code == http.StatusServiceUnavailable && w.Header().Get("Retry-After") == "" {
				t.Errorf("header of the 503 for %s %s = %v, want Retry-After", c.method, c.path, w.Header())
			}
		})
	}
}

func TestListFailsWithoutBackendServer(t *testing.T) {
	router, _ := storingRouter(t, nil)
	w := httptest.NewRecorder()
	chainOf(router, "alice").ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/apis/example.com/v1/widgets", nil))
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "backend server of APIRoute v1.example.com is unavailable") {
		t.Errorf("list without the backend server = %d %s, want 503 that names it", w.Code, w.Body)
	}
}

// Only users with the right to migrate the APIRoute may select the backend. Their rights there do not change.
func TestA48SelectingBackendRequiresMigrateRight(t *testing.T) {
	router, _ := storingRouter(t, widgetsOf("server", "500", "moved"))
	for _, c := range []struct {
		user, backend string
		code          int
		says          string
	}{
		{"alice", "server", 200, `"GET server by alice"`},
		{"alice", "custom", 200, `"GET custom by alice"`},
		{"alice", "nowhere", 400, `no backend \"nowhere\"`},
		{"mallory", "server", 403, `needs the verb \"migrate\" for the APIRoute`},
		{"mallory", "nowhere", 403, "forbidden"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/apis/example.com/v1/namespaces/moved/widgets/one", nil)
		r.Header.Set(dispatch.BackendHeader, c.backend)
		w := httptest.NewRecorder()
		chainOf(router, c.user).ServeHTTP(w, r)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("request of %s for backend %s = %d %s, want %d with %s", c.user, c.backend, w.Code, w.Body, c.code, c.says)
		}
	}
	router.Authorizer = nil
	r := httptest.NewRequest(http.MethodGet, "/apis/example.com/v1/namespaces/moved/widgets/one", nil)
	r.Header.Set(dispatch.BackendHeader, "server")
	w := httptest.NewRecorder()
	if chainOf(router, "alice").ServeHTTP(w, r); w.Code != http.StatusForbidden {
		t.Errorf("request for a backend without an authorizer = %d, want 403", w.Code)
	}
}

// Watches of moved objects end, on either backend. The other watches continue.
func TestWatchOfMovedObjectsEnds(t *testing.T) {
	router, table := storingRouter(t, widgetsOf("server", "500", "moved", "frozen", "other"))
	var tables atomic.Pointer[routetable.Table]
	tables.Store(table)
	router.Routes = tables.Load
	built := router.build()
	server := httptest.NewServer(NewInternalChain(&user.DefaultInfo{Name: "alice"}, metrics.NewRequests(prometheus.NewRegistry()), zap.NewNop(), built))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	changes, ended := make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		ended <- built.Groups.Run(ctx, func() <-chan struct{} {
			if tables.Load() != table {
				return nil // no change follows
			}
			return changes
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	watch := func(path string) *http.Response {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		t.Cleanup(cancel)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/apis/example.com/v1"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("watch of %s = %v with the error %v, want 200", path, resp, err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	whole, moves := watch("/widgets?watch=true"), watch("/namespaces/frozen/widgets?watch=true&resourceVersion=500")
	watch("/namespaces/other/widgets?watch=true&resourceVersion=500")
	set := transport.New(transport.Options{Engine: enginetest.Backend(t)})
	t.Cleanup(set.Close)
	next := dispatchtest.Table(t, set, strings.NewReplacer("generation: 3", "generation: 4", "readOnly: true, ", "", "backendRefs: [{name: server}]", "backendRefs: [{name: custom}]").Replace(storing),
		map[string]http.Handler{"server": named("server"), "custom": named("never asked")})
	tables.Store(next)
	close(changes)
	lines := bufio.NewScanner(whole.Body)
	last := ""
	for lines.Scan() {
		last = lines.Text()
	}
	if !strings.Contains(last, `"type":"ERROR"`) || !strings.Contains(last, `"code":410`) {
		t.Errorf("last event of the watch of all widgets = %s, want an ERROR with code 410", last)
	}
	if body, err := io.ReadAll(moves.Body); err != nil || len(body) > 0 {
		t.Errorf("rest of the watch of the moved namespace = %q with the error %v, want its end", body, err)
	}
}

// A58: Portico sets Accept for a merged list. Connection nominates the client's Accept.
func TestA58NominatedAcceptKeepsAcceptOfMergedList(t *testing.T) {
	objects := widgetsOf("server", "500", "other")
	router, _ := storingRouter(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header["Accept"]; len(got) != 1 || got[0] != "application/json" {
			t.Errorf("Accept at the backend = %q, want application/json", got)
		}
		objects.ServeHTTP(w, r)
	}))
	r := httptest.NewRequest(http.MethodGet, "/apis/example.com/v1/widgets", nil)
	r.Header = http.Header{"Accept": {"application/json"}, "Connection": {"Accept"}}
	w := httptest.NewRecorder()
	if chainOf(router, "alice").ServeHTTP(w, r); w.Code != http.StatusOK {
		t.Errorf("merged list with a nominated Accept = %d %s, want 200", w.Code, w.Body)
	}
}
