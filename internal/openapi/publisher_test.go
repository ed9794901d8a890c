package openapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/discovery/remote/remotetest"
)

// The protobuf media types before "@" was found to be invalid in a media type.
const (
	mediaProtobufOld   = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
	mediaProtobufV2Old = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var gadgets = schema.GroupVersion{Group: "example.com", Version: "v1"}

const gadgetsPath = "apis/example.com/v1"

// v3 returns a document of version 3 that describes the paths.
func v3(title string, paths ...string) string {
	var items []string
	for _, p := range paths {
		items = append(items, fmt.Sprintf(`%q:{"get":{"operationId":"list","responses":{"200":{"description":"OK","content":{"application/json":{"schema":{"$ref":"#/components/schemas/Gadget"}}}}}}}`, p))
	}
	return fmt.Sprintf(`{"openapi":"3.0.0","info":{"title":%q,"version":"1"},"paths":{%s},"components":{"schemas":{"Gadget":{"type":"object","x-kubernetes-group-version-kind":[{"group":"example.com","version":"v1","kind":"Gadget"}]}}}}`,
		title, strings.Join(items, ","))
}

func v2(paths ...string) string {
	var items []string
	for _, p := range paths {
		kind := "Gadget"
		if strings.HasPrefix(p, "/apis/other/") {
			kind = "Other"
		}
		items = append(items, fmt.Sprintf(`%q:{"get":{"operationId":"list","produces":["application/json"],"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/%s"}}}}}`, p, kind))
	}
	return fmt.Sprintf(`{"swagger":"2.0","info":{"title":"two","version":"1"},"paths":{%s},"definitions":{"Gadget":{"type":"object","description":"made of two"},"Other":{"type":"object"}}}`, strings.Join(items, ","))
}

func index3(entries ...string) http.Handler {
	var items []string
	for _, e := range entries {
		path, hash, _ := strings.Cut(e, "#")
		url := "/openapi/v3/" + path
		if hash != "" {
			url += "?hash=" + hash
		}
		items = append(items, fmt.Sprintf(`%q:{"serverRelativeURL":%q}`, path, url))
	}
	return json3(`{"paths":{` + strings.Join(items, ",") + `}}`)
}

func json3(body string) http.Handler {
	return remotetest.Answers(http.StatusOK, "application/json", body)
}

// env is a Publisher with inputs that a test can change.
type env struct {
	*Publisher
	mu                    sync.Mutex
	table                 remote.Table
	local                 []Document
	localV2               []Source
	warnings              map[string]*remote.Warning
	changed, localChanged chan struct{}
	stop                  func()
}

func open(t testing.TB, local []Document, routes ...remote.Route) *env {
	t.Helper()
	return openWithStorage(t, nil, local, routes...)
}

func openWithStorage(t testing.TB, storage remote.LastKnown, local []Document, routes ...remote.Route) *env {
	t.Helper()
	h := &env{table: remote.Table{Routes: routes, Synced: true}, local: local, changed: make(chan struct{}), localChanged: make(chan struct{})}
	l, err := New(Config{
		Local:        func() []Document { h.mu.Lock(); defer h.mu.Unlock(); return h.local },
		LocalV2:      func() []Source { h.mu.Lock(); defer h.mu.Unlock(); return h.localV2 },
		Routes:       func() remote.Table { h.mu.Lock(); defer h.mu.Unlock(); return h.table },
		Changed:      func() <-chan struct{} { h.mu.Lock(); defer h.mu.Unlock(); return h.changed },
		LocalChanged: func() <-chan struct{} { h.mu.Lock(); defer h.mu.Unlock(); return h.localChanged },
		Warning:      func(path string) *remote.Warning { h.mu.Lock(); defer h.mu.Unlock(); return h.warnings[path] },
		Storage:      storage,
		Logger:       zaptest.NewLogger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	h.Publisher = l
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run failed: %v, want no error", err)
		}
	})
	t.Cleanup(h.stop)
	select {
	case <-l.Ready():
	case <-time.After(time.Minute):
		t.Fatal("the Publisher is not ready within a minute, want Ready closed")
	}
	return h
}

func (h *env) change(edit func(*remote.Table)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.table.Routes = append([]remote.Route(nil), h.table.Routes...)
	edit(&h.table)
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *env) get(target string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// until waits until a document contains a text, or, for "", until it is absent.
func (h *env) until(t testing.TB, path, contains string) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%q in %s", contains, path), func() bool {
		w := h.get("/openapi/v3/" + path)
		return contains == "" && w.Code == http.StatusNotFound || contains != "" && w.Code == http.StatusOK && strings.Contains(w.Body.String(), contains)
	})
}

func waitFor(t testing.TB, what string, is func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("condition not met within a minute: want %s", what)
		}
	}
}

func document(t testing.TB, path, body string) Document {
	t.Helper()
	d, err := NewDocument(path, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func routeTo(b remote.Backend) remote.Route {
	return remote.Route{GroupVersion: gadgets, APIService: "v1.example.com", UID: "uid", Backend: b, Available: true}
}

func TestBackendResponseSetsPublishedDocument(t *testing.T) {
	good := json3(v3("three", "/apis/example.com/v1/gadgets", "/apis/example.com/v1"))
	for name, c := range map[string]struct {
		handler  http.Handler
		contains string // of the document; empty if no document is expected
		trouble  string
	}{
		"version 3": {
			handler: remotetest.Paths{"/openapi/v3": index3(gadgetsPath + "#AA"), "/openapi/v3/" + gadgetsPath: good}, contains: "three",
		},
		"version 3 without hashes": {
			handler: remotetest.Paths{"/openapi/v3": index3(gadgetsPath), "/openapi/v3/" + gadgetsPath: good}, contains: "three",
		},
		"version 3 that points elsewhere": {
			handler: remotetest.Paths{"/openapi/v3": json3(`{"paths":{"apis/example.com/v1":{"serverRelativeURL":"https://evil.example.com/secrets?hash=1"}}}`), "/openapi/v3/" + gadgetsPath: good}, contains: "three",
		},
		"version 3 without our group-version": {handler: remotetest.Paths{"/openapi/v3": index3("apis/other/v1")}},
		"version 2 only": {
			handler: remotetest.Paths{"/openapi/v2": json3(v2("/apis/example.com/v1/gadgets", "/apis/example.com/v1beta1/gadgets", "/apis/other/v1/things"))}, contains: "made of two",
		},
		"version 2 without our group-version": {handler: remotetest.Paths{"/openapi/v2": json3(v2("/apis/example.com/v1beta1/gadgets"))}},
		"neither version":                     {handler: remotetest.Paths{}},
		"claims another group's paths": {
			handler: remotetest.Paths{"/openapi/v3": index3(gadgetsPath), "/openapi/v3/" + gadgetsPath: json3(v3("x", "/apis/example.com/v1/gadgets", "/apis/rbac.authorization.k8s.io/v1/roles"))}, trouble: "claims",
		},
		"claims a path that begins like its own": {
			handler: remotetest.Paths{"/openapi/v3": index3(gadgetsPath), "/openapi/v3/" + gadgetsPath: json3(v3("x", "/apis/example.com/v1alpha1/gadgets"))}, trouble: "claims",
		},
		"describes nothing": {
			handler: remotetest.Paths{"/openapi/v3": index3(gadgetsPath), "/openapi/v3/" + gadgetsPath: json3(v3("x"))}, trouble: "no path",
		},
		"version 2 in the place of version 3": {
			handler: remotetest.Paths{"/openapi/v3": index3(gadgetsPath), "/openapi/v3/" + gadgetsPath: json3(v2("/apis/example.com/v1/gadgets"))}, trouble: "version",
		},
		"a document that does not parse": {
			handler: remotetest.Paths{"/openapi/v3": index3(gadgetsPath), "/openapi/v3/" + gadgetsPath: json3(`{"openapi":"3.0.0","paths":7}`)}, trouble: "parse",
		},
		"an index that does not parse": {handler: remotetest.Paths{"/openapi/v3": json3(`<html>`)}, trouble: "decode"},
		"a document that is too large": {
			handler: remotetest.Paths{"/openapi/v3": index3(gadgetsPath), "/openapi/v3/" + gadgetsPath: remotetest.Floods(maxDocument+1, "application/json")}, trouble: "larger",
		},
		"a redirect": {
			handler: remotetest.Paths{"/openapi/v3": index3(gadgetsPath), "/openapi/v3/" + gadgetsPath: remotetest.Redirects("/elsewhere")}, trouble: "answered 302",
		},
		"forbidden": {handler: remotetest.Answers(403, "text/plain", "no"), trouble: "answered 403"},
	} {
		t.Run(name, func(t *testing.T) {
			b := remotetest.NewTLS(t, "ns/gadgets:443", c.handler)
			h := open(t, []Document{document(t, "api/v1", v3("local", "/api/v1/pods"))}, routeTo(b))
			if c.contains != "" {
				h.until(t, gadgetsPath, c.contains)
			} else {
				waitFor(t, "a round", func() bool { return len(b.Requests()) > 0 && strings.Contains(h.Problem("v1.example.com"), c.trouble) })
				h.until(t, gadgetsPath, "")
			}
			if strings.Contains(h.get("/openapi/v3/"+gadgetsPath).Body.String(), "Other") {
				t.Error("the document has the schema Other, want only schemas that its paths refer to")
			}
			for _, r := range b.Requests() {
				if r.Header.Get("X-Remote-User") != "system:aggregator" || r.Header.Get("X-Remote-Group") != "" {
					t.Errorf("identity = user %q, group %q, want system:aggregator and none", r.Header.Get("X-Remote-User"), r.Header.Get("X-Remote-Group"))
				}
			}
			h.until(t, "api/v1", "local")
		})
	}
}

func TestHangingBackendDelaysNoOtherDocument(t *testing.T) {
	b := remotetest.NewTLS(t, "ns/hangs:443", remotetest.Hangs())
	h := open(t, []Document{document(t, "api/v1", v3("local", "/api/v1/pods"))}, routeTo(b))
	waitFor(t, "the backend to be asked", func() bool { return len(b.Requests()) > 0 })
	began := time.Now()
	if w := h.get("/openapi/v3"); w.Code != 200 || !strings.Contains(w.Body.String(), "api/v1") {
		t.Errorf("GET /openapi/v3 = %d: %s, want 200 with api/v1", w.Code, w.Body)
	}
	h.stop()
	if took := time.Since(began); took >= fetchTimeout {
		t.Errorf("the answer and the stop took %s, want less than %s", took, fetchTimeout)
	}
}

func TestLastValidDocumentIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := remotetest.Paths{"/openapi/v3": index3(gadgetsPath + "#1"), "/openapi/v3/" + gadgetsPath: json3(v3("good", "/apis/example.com/v1/gadgets"))}
		b := remotetest.NewInProcess("ns/gadgets:443", good)
		h := open(t, nil, routeTo(b))
		defer h.stop()
		pass := func(d time.Duration) { <-time.After(d); synctest.Wait() }
		pass(time.Second)
		h.until(t, gadgetsPath, "good")
		asked := len(b.Requests())

		pass(remote.MaxInterval + time.Minute)
		for _, r := range b.Requests()[asked:] {
			if r.URL.Path != "/openapi/v3" {
				t.Errorf("request for %s, want only the index while the hash is unchanged", r.URL)
			}
		}
		if len(b.Requests()) == asked {
			t.Error("no request in an interval, want at least 1")
		}
		for name, bad := range map[string]http.Handler{
			"hangs":   remotetest.Hangs(),
			"fails":   remotetest.Answers(500, "text/plain", "boom"),
			"lies":    remotetest.Paths{"/openapi/v3": index3(gadgetsPath + "#2"), "/openapi/v3/" + gadgetsPath: json3(v3("x", "/api/v1/secrets"))},
			"forgets": remotetest.Paths{"/openapi/v3": index3("apis/other/v1")},
			"babbles": json3("{"),
		} {
			b.Become(bad)
			pass(remote.MaxInterval + time.Minute)
			if w := h.get("/openapi/v3/" + gadgetsPath); !strings.Contains(w.Body.String(), "good") {
				t.Errorf("a backend that %s: response = %d %s, want the last good document", name, w.Code, w.Body)
			}
			if name != "forgets" && h.Problem("v1.example.com") == "" {
				t.Errorf("a backend that %s: Problem() is empty, want a problem", name)
			}
		}
		b.Become(remotetest.Paths{"/openapi/v3": index3(gadgetsPath + "#3"), "/openapi/v3/" + gadgetsPath: json3(v3("better", "/apis/example.com/v1/gadgets"))})
		pass(remote.MaxInterval + time.Minute)
		h.until(t, gadgetsPath, "better")
		if why := h.Problem("v1.example.com"); why != "" {
			t.Errorf("Problem() after a good document = %s, want none", why)
		}
		h.change(func(table *remote.Table) { table.Routes = nil })
		pass(time.Second)
		h.until(t, gadgetsPath, "")
	})
}

// A connection keeps the memory that a large document took. A backend that sends the same large document again and again,
// without a hash, gets no new connection for it.
func TestLargeDocumentReplacesConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		document := func(text string) remotetest.Paths {
			return remotetest.Paths{"/openapi/v3": index3(gadgetsPath), "/openapi/v3/" + gadgetsPath: json3(v3(text, "/apis/example.com/v1/gadgets"))}
		}
		long := strings.Repeat("x", largeDocument)
		b := remotetest.NewInProcess("ns/gadgets:443", document("small"))
		h := open(t, nil, routeTo(b))
		defer h.stop()
		for _, step := range []struct {
			text     string
			renewals int
		}{{"small", 0}, {"large " + long, 1}, {"large " + long, 1}, {"larger " + long + long, 2}, {"small", 2}} {
			b.Become(document(step.text))
			asked := len(b.Requests())
			<-time.After(remote.MaxInterval + time.Minute)
			synctest.Wait()
			h.until(t, gadgetsPath, step.text)
			if got := b.Renewals(); got != step.renewals || len(b.Requests()) == asked {
				t.Errorf("%.8s: %d new connections with %d requests, want %d with at least 1", step.text, got, len(b.Requests())-asked, step.renewals)
			}
		}
	})
}

// The upstream aggregator requests version 2 from a backend that once had no version 3 for as long as its APIService exists.
func TestBackendUpgradedToOpenAPIV3IsDetected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		two := remotetest.Paths{"/openapi/v2": json3(v2("/apis/example.com/v1/gadgets"))}
		b := remotetest.NewInProcess("ns/gadgets:443", two)
		h := open(t, nil, routeTo(b))
		defer h.stop()
		<-time.After(time.Second)
		h.until(t, gadgetsPath, "made of two")
		b.Become(remotetest.Paths{"/openapi/v3": index3(gadgetsPath + "#1"), "/openapi/v3/" + gadgetsPath: json3(v3("three", "/apis/example.com/v1/gadgets"))})
		<-time.After(2 * time.Minute)
		synctest.Wait()
		h.until(t, gadgetsPath, "three")
		b.Become(two)
		<-time.After(2 * time.Minute)
		synctest.Wait()
		h.until(t, gadgetsPath, "made of two")
	})
}

func TestDocumentByHashIsImmutable(t *testing.T) {
	body := v3("local", "/api/v1/pods")
	d := document(t, "api/v1", body)
	h := open(t, []Document{d})

	w := h.get("/openapi/v3/api/v1")
	if w.Code != 200 || w.Body.String() != body || w.Header().Get("ETag") != `"`+d.Hash+`"` || w.Header().Get("Cache-Control") != "" || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("without a hash: %d %v, want 200 with the ETag and no Cache-Control", w.Code, w.Header())
	}
	w = h.get(d.URL())
	if got := w.Header().Values("Cache-Control"); w.Code != 200 || len(got) != 1 || got[0] != "public, immutable" {
		t.Errorf("by its hash: %d %v, want 200 public, immutable", w.Code, w.Header())
	}
	if expires, err := http.ParseTime(w.Header().Get("Expires")); err != nil || time.Until(expires) < 364*24*time.Hour {
		t.Errorf("Expires = %q, want a time in about a year", w.Header().Get("Expires"))
	}
	w = h.get("/openapi/v3/api/v1?hash=OLD")
	if w.Code != 301 || w.Header().Get("Location") != d.URL() || w.Header().Get("Expires") != "" {
		t.Errorf("by an old hash: %d %v, want 301 to %s without Expires", w.Code, w.Header(), d.URL())
	}
	w = h.get(d.URL(), "If-None-Match", `W/"`+d.Hash+`"`)
	if w.Code != 304 || w.Body.Len() != 0 {
		t.Errorf("with the held ETag: %d, want 304 without a body", w.Code)
	}
	w = h.get("/openapi/v3/api/v1", "Accept-Encoding", "gzip")
	reader, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(reader); err != nil || string(got) != body {
		t.Errorf("decompressed document = %s, error %v, want %s", got, err, body)
	}
	r := httptest.NewRequest(http.MethodHead, "/openapi/v3/api/v1", nil)
	head := httptest.NewRecorder()
	h.ServeHTTP(head, r)
	if head.Code != 200 || head.Body.Len() != 0 {
		t.Errorf("HEAD = %d with %d bytes, want 200 without a body", head.Code, head.Body.Len())
	}
}

func TestDocumentIsServedAsProtobuf(t *testing.T) {
	d := document(t, "api/v1", v3("local", "/api/v1/pods"))
	h := open(t, []Document{d})
	for _, accept := range []string{mediaProtobuf, mediaProtobufOld, mediaProtobufOld + ", application/json;q=0.5"} {
		w := h.get(d.URL(), "Accept", accept)
		if w.Code != 200 || w.Header().Get("Content-Type") != mediaProtobuf || w.Header().Get("ETag") != `"`+d.Hash+`"` {
			t.Fatalf("%s: response = %d %v, want 200 as %s", accept, w.Code, w.Header(), mediaProtobuf)
		}
		var got openapi_v3.Document
		if err := proto.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if got.GetInfo().GetTitle() != "local" || len(got.GetPaths().GetPath()) != 1 {
			t.Errorf("%s: document = %s, want title local with 1 path", accept, &got)
		}
	}
}

func TestUnsupportedDocumentRequestsAreRejected(t *testing.T) {
	h := open(t, []Document{document(t, "api/v1", v3("local", "/api/v1/pods"))})
	for name, c := range map[string]struct {
		method, path, accept string
		code                 int
	}{
		"an unknown document":       {"GET", "/openapi/v3/apis/nowhere/v1", "", 404},
		"a path that only begins":   {"GET", "/openapi/v3api/v1", "", 404},
		"below version 2":           {"GET", "/openapi/v2/apis", "", 404},
		"version 2 as HTML":         {"GET", "/openapi/v2", "text/html", 406},
		"neither JSON nor protobuf": {"GET", "/openapi/v3/api/v1", "text/html", 406},
		"a write":                   {"POST", "/openapi/v3", "", 405},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(c.method, c.path, nil)
			r.Header.Set("Accept", c.accept)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != c.code || !strings.Contains(w.Body.String(), `"kind":"Status"`) {
				t.Errorf("response = %d: %s, want %d with a Status", w.Code, w.Body, c.code)
			}
		})
	}
}

func TestIndexListsLocalAndRemoteDocuments(t *testing.T) {
	b := remotetest.NewTLS(t, "ns/gadgets:443", remotetest.Paths{"/openapi/v3": index3(gadgetsPath), "/openapi/v3/" + gadgetsPath: json3(v3("three", "/apis/example.com/v1/gadgets"))})
	local := []Document{document(t, "version", v3("version", "/version")), document(t, "api/v1", v3("local", "/api/v1/pods")), document(t, gadgetsPath, v3("taken over", "/apis/example.com/v1/gadgets"))}
	h := open(t, local, routeTo(b))
	h.until(t, gadgetsPath, "three")
	w := h.get("/openapi/v3")
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("GET /openapi/v3 = %d %v, want 200 as application/json", w.Code, w.Header())
	}
	golden(t, "testdata/index.json", w.Body.Bytes())
	if again := h.get("/openapi/v3", "If-None-Match", w.Header().Get("ETag")); again.Code != 304 {
		t.Errorf("with the held ETag: %d, want 304", again.Code)
	}
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s = %s, want %s; run with -update if the new document is correct", file, want, got)
	}
}

func TestLargeIndexIsCompressed(t *testing.T) {
	var local []Document
	for i := range 1000 {
		local = append(local, document(t, fmt.Sprintf("apis/group-%04d.example.com/v1", i), "{}"))
	}
	h := open(t, local)
	plain, packed := h.get("/openapi/v3"), h.get("/openapi/v3", "Accept-Encoding", "gzip")
	if plain.Header().Get("Content-Encoding") != "" || packed.Header().Get("Content-Encoding") != "gzip" || packed.Body.Len() >= plain.Body.Len() {
		t.Errorf("index of %d bytes, %d compressed, want gzip and fewer bytes", plain.Body.Len(), packed.Body.Len())
	}
	if plain.Header().Get("ETag") != packed.Header().Get("ETag") || packed.Header().Get("Vary") != "Accept-Encoding" {
		t.Errorf("headers of the compressed index = %v, want the same ETag and Vary Accept-Encoding", packed.Header())
	}
}

func FuzzBackendDocuments(f *testing.F) {
	f.Add([]byte(v3("x", "/apis/example.com/v1/gadgets")))
	f.Add([]byte(v2("/apis/example.com/v1/gadgets")))
	f.Add([]byte(`{"openapi":"3.0.0","paths":{"/apis/example.com/v1":null}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if err := check(body, gadgets); err == nil {
			if _, err := NewDocument(gadgetsPath, body); err != nil {
				t.Error(err)
			}
		}
		converted, err := fromV2(body, []schema.GroupVersion{gadgets})
		if err != nil {
			return
		}
		for gv, document := range converted {
			_ = check(document, gv) // must not panic for any input
		}
	})
}

func TestRepeatedBackendIndexIsDecodedOnce(t *testing.T) {
	a, b := schema.GroupVersion{Group: "a.example.com", Version: "v1"}, schema.GroupVersion{Group: "b.example.com", Version: "v1"}
	index := func(hash string) []byte {
		return []byte(`{"paths":{"apis/a.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/a.example.com/v1?hash=` + hash + `"}}}`)
	}
	var s session
	for name, c := range []struct {
		body   []byte
		wanted []schema.GroupVersion
		want   map[schema.GroupVersion]string
		again  bool // the hashes are the same map as before
	}{
		{index("1"), []schema.GroupVersion{a}, map[schema.GroupVersion]string{a: "1"}, false},
		{index("1"), []schema.GroupVersion{a}, map[schema.GroupVersion]string{a: "1"}, true},
		{index("2"), []schema.GroupVersion{a}, map[schema.GroupVersion]string{a: "2"}, false},
		{index("2"), []schema.GroupVersion{a, b}, map[schema.GroupVersion]string{a: "2"}, false},
		{index("2"), []schema.GroupVersion{b}, map[schema.GroupVersion]string{}, false},
	} {
		before := s.hashes
		if err := s.readRoot(c.body, c.wanted); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(s.hashes, c.want) {
			t.Errorf("%d: hashes = %v, want %v", name, s.hashes, c.want)
		}
		if again := before != nil && reflect.ValueOf(before).Pointer() == reflect.ValueOf(s.hashes).Pointer(); again != c.again {
			t.Errorf("%d: the index was decoded again = %v, want %v", name, !again, !c.again)
		}
	}
	s.backend = remotetest.NewTLS(t, "ns/name:443", remotetest.Hangs())
	if err := s.readRoot([]byte("{"), []schema.GroupVersion{b}); err == nil {
		t.Error("readRoot() of half an index succeeded, want an error")
	}
	if err := s.readRoot(index("2"), []schema.GroupVersion{b}); err != nil || len(s.hashes) != 0 || s.hashes == nil {
		t.Errorf("readRoot() of a good index after a bad one: hashes = %v, error %v, want none and no error", s.hashes, err)
	}
}
