package declared

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"portico.dev/internal/pki"
	"portico.dev/pkg/extension"
)

// broker is a TLS server whose response a test changes.
type broker struct {
	mu     sync.Mutex
	answer string
	code   int
	url    string
	caFile string
}

func newBroker(t *testing.T, answer string) *broker {
	t.Helper()
	b := &broker{answer: answer, code: http.StatusOK}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		w.WriteHeader(b.code)
		_, _ = io.WriteString(w, b.answer)
	}))
	t.Cleanup(server.Close)
	b.url, b.caFile = server.URL, filepath.Join(t.TempDir(), "ca.crt")
	write(t, b.caFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	return b
}

func (b *broker) set(code int, answer string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.code, b.answer = code, answer
}

// definition returns a file that queries the broker once a second.
func (b *broker) definition(more string) string {
	return head + fmt.Sprintf(`- group: stats.example.com
  version: v1
  plural: queues
  kind: Queue
  shortNames: [q]
  namespaced: true
  every: 1s
  source: {http: {url: %q, caFile: %q, timeout: 20s}}
  object:
    name: .id
    namespace: default
    labels: {team: .team}
    fields: {status.depth: .depth}
  columns: [{name: Depth, path: .status.depth, type: integer}]
  fieldSelectors: [status.depth]
%s`, b.url, b.caFile, more)
}

// everybody allows all requests. Other tests cover authorization.
type everybody struct{}

func (everybody) AuthenticateRequest(*http.Request) (user.Info, error) {
	return &user.DefaultInfo{Name: "alice"}, nil
}

func (everybody) Authorize(context.Context, user.Info, *apirequest.RequestInfo) (bool, string, error) {
	return true, "", nil
}

// hosted is a host on a TLS listener that serves the resources declared in files.
type hosted struct {
	t      *testing.T
	set    *Set
	client *http.Client
	config *rest.Config
}

func host(t *testing.T, paths ...string) *hosted {
	t.Helper()
	authority, err := pki.NewAuthority("test-ca")
	must(t, err)
	cert, key, err := authority.Issue(pki.Leaf{CommonName: "host", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true})
	must(t, err)
	pair, err := pki.StaticKeyPair(cert, key)
	must(t, err)
	var server *extension.Host
	set, err := New(Config{Paths: paths, AllowExec: true, Apply: func(r []extension.Resource) error { return server.SetResources(r) }})
	must(t, err)
	server, err = extension.New(extension.Config{Resources: set.Resources(), Sources: set.Sources, Authenticator: everybody{}, Authorizer: everybody{},
		BindAddress: "127.0.0.1", GetCertificate: pair.GetCertificate, ShutdownTimeout: time.Second})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- server.Run(ctx) }()
	go func() { done <- set.Run(ctx) }()
	config := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: authority.PEM()}}
	t.Cleanup(func() {
		cancel()
		for range 2 {
			must(t, <-done)
		}
	})
	select {
	case <-server.Ready():
	case <-time.After(time.Minute):
		t.Fatal("host is not ready after a minute, want a ready host")
	}
	config.Host = "https://" + server.Address()
	tlsConfig, err := pki.ClientConfig(pki.ClientOptions{Roots: authority.PEM()})
	must(t, err)
	transport := &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &hosted{t: t, set: set, client: &http.Client{Transport: transport}, config: config}
}

// get sends a GET and returns the response with its warnings.
func (h *hosted) get(path, accept string) (code int, body string, warnings []string) {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, h.config.Host+path, nil)
	must(h.t, err)
	r.Header.Set("Accept", accept)
	answer, err := h.client.Do(r)
	must(h.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(h.t, err)
	return answer.StatusCode, string(text), answer.Header.Values("Warning")
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("condition %q is still false after the deadline, want true", what)
		case <-tick.C:
		}
	}
}

const (
	asJSON  = "application/json"
	asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"
	queuesV = "/apis/stats.example.com/v1/queues"
)

func TestInformerSyncsAndReceivesChanges(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	b := newBroker(t, `[{"id": "a", "team": "x", "depth": 1}, {"id": "b", "team": "y", "depth": 5}]`)
	file := filepath.Join(t.TempDir(), "queues.yaml")
	write(t, file, b.definition(""))
	h := host(t, file)
	client, err := dynamic.NewForConfigAndClient(h.config, h.client)
	must(t, err)
	events := make(chan string, 100)
	tell := func(verb string, o any) {
		u := o.(*unstructured.Unstructured)
		depth, _, _ := unstructured.NestedInt64(u.Object, "status", "depth")
		events <- fmt.Sprintf("%s %s/%s %d", verb, u.GetNamespace(), u.GetName(), depth)
	}
	queues := client.Resource(schema.GroupVersionResource{Group: "stats.example.com", Version: "v1", Resource: "queues"})
	informer := cache.NewSharedInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return queues.List(ctx, o) },
		WatchFuncWithContext: queues.Watch,
	}, client), &unstructured.Unstructured{}, 0)
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { tell("add", o) }, UpdateFunc: func(_, o any) { tell("update", o) }, DeleteFunc: func(o any) { tell("delete", o) },
	})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	defer running.Wait()
	defer cancel()
	expect := func(want ...string) {
		t.Helper()
		left := map[string]bool{}
		for _, w := range want {
			left[w] = true
		}
		for len(left) > 0 {
			select {
			case e := <-events:
				if !left[e] {
					t.Fatalf("event = %q, want one of %v", e, left)
				}
				delete(left, e)
			case <-time.After(time.Minute):
				t.Fatalf("no event arrived within a minute, want %v", left)
			}
		}
	}
	expect("add default/a 1", "add default/b 5")
	b.set(http.StatusOK, `[{"id": "a", "team": "x", "depth": 2}, {"id": "c", "team": "y", "depth": 5}]`)
	expect("update default/a 2", "add default/c 5", "delete default/b 5")
	b.set(http.StatusInternalServerError, "oops") // A source that fails deletes nothing.
	eventually(t, "trouble", func() bool { return h.set.Sources()[1].LastError() != nil })
	b.set(http.StatusOK, `[{"id": "c", "team": "y", "depth": 5}]`)
	expect("delete default/a 2")
}

func TestDeclaredResourceIsServedInEveryFormat(t *testing.T) {
	t.Parallel()
	b := newBroker(t, `[{"id": "a", "team": "x", "depth": 1}, {"id": "b", "team": "y", "depth": 5}]`)
	file := filepath.Join(t.TempDir(), "queues.yaml")
	write(t, file, b.definition(""))
	h := host(t, file)
	for _, c := range []struct{ situation, path, accept, want string }{
		{"one", "/apis/stats.example.com/v1/namespaces/default/queues/a", asJSON, `"status":{"depth":1}`},
		{"label selector", queuesV + "?labelSelector=team%3Dy", asJSON, `"name":"b"`},
		{"field selector", queuesV + "?fieldSelector=status.depth%3D5", asJSON, `"name":"b"`},
		{"table", queuesV, asTable, `"cells":["b",5]`},
		{"metadata", queuesV, "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", `"labels":{"team":"x"}`},
		{"YAML", queuesV, "application/yaml", "depth: 5"},
		{"discovery", "/apis/stats.example.com/v1", asJSON, `"shortNames":["q"]`},
	} {
		t.Run(c.situation, func(t *testing.T) {
			code, body, _ := h.get(c.path, c.accept)
			if code != http.StatusOK || !strings.Contains(body, c.want) {
				t.Errorf("GET %s = %d %s, want 200 and a body that contains %q", c.path, code, body, c.want)
			}
			if strings.Contains(c.path, "Selector") && strings.Contains(body, `"name":"a"`) {
				t.Errorf("GET %s with a selector = %s, want it without the object a", c.path, body)
			}
		})
	}
	eventually(t, "the inferred schema", func() bool {
		_, body, _ := h.get("/openapi/v3/apis/stats.example.com/v1", asJSON)
		var doc struct {
			Components struct {
				Schemas map[string]struct {
					Properties map[string]any
					Kinds      []any `json:"x-kubernetes-group-version-kind"`
				}
			}
		}
		must(t, json.Unmarshal([]byte(body), &doc))
		for name, s := range doc.Components.Schemas {
			if strings.HasSuffix(name, ".Queue") && s.Properties["metadata"] != nil && len(s.Kinds) == 1 {
				return strings.Contains(fmt.Sprint(s.Properties["status"]), "int64")
			}
		}
		return false
	})
}

func TestFailingSourceServesLastResponseWithWarning(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	b := newBroker(t, `[{"id": "a", "depth": 1}]`)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "queues.yaml"), b.definition(""))
	// Another source, which continues while the first fails.
	write(t, filepath.Join(dir, "loads.yaml"), head+"- {group: machine.example.com, version: v1, plural: loads, kind: Load, every: 1s, source: {procfs: {table: loadavg}}}\n")
	h := host(t, dir)
	code, body, warnings := h.get(queuesV, asJSON)
	if code != http.StatusOK || len(warnings) > 0 {
		t.Fatalf("GET of the queues = %d %s, warnings %q, want 200 without warnings", code, body, warnings)
	}
	b.set(http.StatusBadGateway, "secret address 10.0.0.1")
	eventually(t, "a warning", func() bool {
		code, body, warnings = h.get(queuesV, asJSON)
		return len(warnings) > 0
	})
	if code != http.StatusOK || !strings.Contains(body, `"name":"a"`) {
		t.Errorf("GET of the queues while the source fails = %d %s, want 200 with the object a", code, body)
	}
	if !strings.Contains(warnings[0], "the http source of queues.stats.example.com has not answered since") || strings.Contains(warnings[0], "10.0.0.1") {
		t.Errorf("warning = %q, want the name of the source without its address", warnings[0])
	}
	code, body, _ = h.get("/readyz?verbose", "*/*")
	if code != http.StatusOK || !strings.Contains(body, "HTTP 502") {
		t.Errorf("GET /readyz?verbose = %d %s, want 200 with \"HTTP 502\"", code, body)
	}
	_, body, _ = h.get("/metrics", "*/*")
	for _, want := range []string{`extserver_source_up{source="declared/queues.stats.example.com/v1"} 0`, `extserver_source_up{source="declared/loads.machine.example.com/v1"} 1`} {
		if !strings.Contains(body, want) {
			t.Errorf("metrics lack %s, want it in the body", want)
		}
	}
	if code, body, warnings = h.get("/apis/machine.example.com/v1/loads", asJSON); code != http.StatusOK || len(warnings) > 0 || !strings.Contains(body, "load15") {
		t.Errorf("GET of the resource of the other source = %d %s, warnings %q, want 200 without warnings", code, body, warnings)
	}
	b.set(http.StatusOK, `[{"id": "a", "depth": 1}, {"id": "a", "depth": 2}]`)
	eventually(t, "an end of the warning", func() bool {
		_, _, warnings = h.get(queuesV, asJSON)
		return len(warnings) == 1 && strings.Contains(warnings[0], "1 items have the name of another and are not shown (the first is default/a)")
	})
}

func TestResourceWithoutFirstResponseReturns503(t *testing.T) {
	b := newBroker(t, "")
	b.set(http.StatusBadGateway, "")
	file := filepath.Join(t.TempDir(), "queues.yaml")
	write(t, file, b.definition(""))
	h := host(t, file)
	code, body, _ := h.get(queuesV, asJSON)
	if code != http.StatusServiceUnavailable || !strings.Contains(body, "has never answered") {
		t.Errorf("GET before the first answer of the source = %d %s, want 503 with \"has never answered\"", code, body)
	}
}

func TestChangedFilesAreReloaded(t *testing.T) {
	t.Parallel()
	b := newBroker(t, `[{"id": "a", "depth": 1}]`)
	dir := t.TempDir()
	file := filepath.Join(dir, "queues.yaml")
	write(t, file, b.definition(""))
	h := host(t, dir)
	served := func(path string) bool {
		code, _, _ := h.get(path, asJSON)
		return code == http.StatusOK
	}
	if !served(queuesV) {
		t.Fatal("GET of the queues fails after the start, want 200")
	}
	kept := h.set.lives[0]
	write(t, file, b.definition("  kolumns: []\n"))
	eventually(t, "trouble with the bad file", func() bool {
		err := h.set.LastError()
		return err != nil && strings.Contains(err.Error(), `queues.yaml:19:3: resources[0].kolumns: unknown field; did you mean "columns"?`)
	})
	write(t, filepath.Join(dir, "loads.yaml"), head+"- {group: machine.example.com, version: v1, plural: loads, kind: Load, every: 1s, source: {procfs: {table: loadavg}}}\n")
	eventually(t, "another file beside the bad one", func() bool { return served("/apis/machine.example.com/v1/loads") })
	if !served(queuesV) {
		t.Error("GET of the queues fails after their file became invalid, want the last valid definition")
	}
	write(t, file, b.definition("# only a comment\n"))
	eventually(t, "the end of the trouble", func() bool { return h.set.LastError() == nil })
	if h.set.lives[1] != kept && h.set.lives[0] != kept {
		t.Error("resource restarted after a change of a comment, want the same instance")
	}
	write(t, file, strings.Replace(b.definition(""), "plural: queues", "plural: lines", 1))
	eventually(t, "the renamed resource", func() bool { return served("/apis/stats.example.com/v1/lines") && !served(queuesV) })
}
