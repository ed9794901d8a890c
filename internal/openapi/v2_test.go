package openapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeproto "k8s.io/kube-openapi/pkg/util/proto"

	"portico.dev/internal/coreapi/openapidocs"
	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/discovery/remote/remotetest"
	"portico.dev/internal/respond"
)

func localV2(t testing.TB) []Source {
	return []Source{Prepared(document(t, "", `{"swagger":"2.0","info":{"title":"Portico","version":"1"},"paths":{`+
		`"/api/v1/pods":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/Pod"}}}}},`+
		`"/apis/example.com/v1/gadgets":{"get":{"responses":{"200":{"description":"taken over","schema":{"$ref":"#/definitions/Lost"}}}}}},`+
		`"definitions":{"Lost":{"type":"object"},"Pod":{"type":"object","x-kubernetes-group-version-kind":[{"group":"","kind":"Pod","version":"v1"}]}}}`))}
}

// openV2 returns an env with local groups in version 2.
func openV2(t testing.TB, routes ...remote.Route) *env {
	h := open(t, nil, routes...)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.localV2 = localV2(t)
	return h
}

func pathsIn(t testing.TB, w *httptest.ResponseRecorder) map[string]any {
	t.Helper()
	var d struct {
		Swagger string         `json:"swagger"`
		Paths   map[string]any `json:"paths"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil || w.Code != 200 || d.Swagger != "2.0" {
		t.Fatalf("document = %d, error %v: %s, want 200 in version 2.0", w.Code, err, w.Body)
	}
	return d.Paths
}

func another(b remote.Backend, group string) remote.Route {
	return remote.Route{GroupVersion: schema.GroupVersion{Group: group, Version: "v1"}, APIService: "v1." + group, UID: "uid", Backend: b, Available: true}
}

func TestV2DocumentMergesLocalAndRemoteParts(t *testing.T) {
	claims := `{"swagger":"2.0","info":{"title":"x","version":"1"},"paths":{` +
		`"/apis/example.com/v1/gadgets":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/Gadget"}}}}},` +
		`"/apis/example.com/v1alpha1/gadgets":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/Unused"}}}}},` +
		`"/api/v1/pods":{"get":{"responses":{"200":{"description":"mine"}}}}},` +
		`"definitions":{"Unused":{"type":"object"},` +
		`"Gadget":{"type":"object","properties":{"spec":{"$ref":"#/definitions/Pod"},"size":{"type":"integer","default":7}},"x-kubernetes-group-version-kind":[{"group":"example.com","kind":"Gadget","version":"v1"}]},` +
		`"Pod":{"type":"object","description":"what a backend says a Pod is","x-kubernetes-group-version-kind":[{"group":"","kind":"Pod","version":"v1"}]}}}`
	b := remotetest.NewTLS(t, "ns/gadgets:443", remotetest.Paths{"/openapi/v2": json3(claims)})
	h := openV2(t, routeTo(b))
	var w *httptest.ResponseRecorder
	waitFor(t, "the backend's part", func() bool { // a reader waits for it briefly, and otherwise it is in the next document
		w = h.get("/openapi/v2")
		return strings.Contains(w.Body.String(), "what a backend says a Pod is")
	})
	paths := pathsIn(t, w)
	if len(paths) != 2 || paths["/api/v1/pods"] == nil || paths["/apis/example.com/v1/gadgets"] == nil {
		t.Errorf("paths = %v, want pods and gadgets", paths)
	}
	golden(t, "testdata/swagger.json", w.Body.Bytes())
	body := w.Body.String()
	for _, absent := range []string{"mine", "Unused", "Lost", "default"} {
		if strings.Contains(body, absent) {
			t.Errorf("the document contains %q, want it absent: %s", absent, body)
		}
	}
	if strings.Count(body, `{"group":"","kind":"Pod","version":"v1"}`) != 1 || !strings.Contains(body, `"Pod_v2":{"description":"what a backend says a Pod is","type":"object"}`) {
		t.Errorf("document = %s, want the local definition of Pod, and the backend's as Pod_v2", body)
	}
	for _, r := range b.Requests() {
		if r.URL.Path == "/openapi/v2" && (r.Header.Get("X-Remote-User") != "system:aggregator" || r.Header.Get("X-Remote-Group") != "") {
			t.Errorf("identity = user %q, group %q, want system:aggregator and none", r.Header.Get("X-Remote-User"), r.Header.Get("X-Remote-Group"))
		}
	}
}

func TestV2DocumentIsServedConditionally(t *testing.T) {
	h := openV2(t)
	plain := h.get("/openapi/v2")
	etag := `"` + respond.Hash(plain.Body.Bytes()) + `"`
	if plain.Header().Get("ETag") != etag || plain.Header().Get("Content-Type") != "application/json" || strings.Join(plain.Header().Values("Vary"), ",") != "Accept,Accept-Encoding" {
		t.Errorf("headers = %v, want ETag %s, application/json and Vary Accept,Accept-Encoding", plain.Header(), etag)
	}
	for _, held := range []string{etag, "W/" + etag, `"other", ` + etag, "*"} {
		if w := h.get("/openapi/v2", "If-None-Match", held); w.Code != 304 || w.Body.Len() != 0 || w.Header().Get("ETag") != etag {
			t.Errorf("If-None-Match %s: response = %d, want 304 without a body", held, w.Code)
		}
	}
	if w := h.get("/openapi/v2", "If-None-Match", `"other"`); w.Code != 200 {
		t.Errorf("If-None-Match of another document: response = %d, want 200", w.Code)
	}
	if w := h.get("/openapi/v2", "Accept-Encoding", "gzip"); w.Header().Get("Content-Encoding") != "gzip" || w.Body.Len() == 0 {
		t.Errorf("headers = %v, want Content-Encoding gzip and a body", w.Header())
	}
	for _, accept := range []string{mediaProtobufV2, mediaProtobufV2Old, mediaProtobufV2Old + ", application/json;q=0.5"} {
		w := h.get("/openapi/v2", "Accept", accept)
		var got openapi_v2.Document
		if err := proto.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 || len(got.GetPaths().GetPath()) != 2 {
			t.Errorf("%s: response = %d, error %v: %s, want 200 with 2 paths", accept, w.Code, err, &got)
		}
		if w.Header().Get("Content-Type") != mediaProtobufV2 || w.Header().Get("ETag") != etag {
			t.Errorf("%s: headers = %v, want Content-Type %s and ETag %s", accept, w.Header(), mediaProtobufV2, etag)
		}
	}
}

// One bad member never removes content of the other members.
func TestBadV2DocumentKeepsOtherMembers(t *testing.T) {
	path := `"/apis/example.com/v1/gadgets":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/Gadget"}}}}}`
	with := func(definitions string) http.Handler {
		return json3(`{"swagger":"2.0","info":{"title":"x","version":"1"},"paths":{` + path + `},"definitions":{` + definitions + `}}`)
	}
	for name, c := range map[string]struct {
		handler http.Handler
		trouble string
	}{
		"none":                                  {http.NotFoundHandler(), ""},
		"not JSON":                              {json3("<html>"), "does not parse"},
		"version 3 in its place":                {json3(v3("x", "/apis/example.com/v1/gadgets")), "version"},
		"a dangling reference":                  {with(`"Gadget":{"properties":{"a":{"$ref":"#/definitions/None"}}}`), `"definitions/None"`},
		"a reference to another server":         {with(`"Gadget":{"properties":{"a":{"$ref":"https://evil.example.com/x"}}}`), "leads nowhere"},
		"a reference into a definition":         {with(`"Gadget":{"properties":{"a":{"$ref":"#/definitions/Gadget/properties/a"}}}`), "leads nowhere"},
		"what cannot be written as protobuf":    {json3(strings.Replace(v2("/apis/example.com/v1/gadgets"), `"description":"OK",`, "", 1)), "clients could not read"},
		"a type that no client knows":           {with(`"Gadget":{"type":"object","properties":{"a":{"type":["string","integer"]}}}`), "clients could not read"},
		"another one's paths":                   {json3(v2("/apis/rbac.authorization.k8s.io/v1/roles")), ""},
		"too large":                             {remotetest.Floods(maxDocument+1, "application/json"), "larger"},
		"a redirect":                            {remotetest.Redirects("/elsewhere"), "answered 302"},
		"forbidden":                             {remotetest.Answers(403, "text/plain", "no"), "answered 403"},
		"an array in the place of paths":        {json3(`{"swagger":"2.0","paths":[]}`), "parse"},
		"definitions that are no definitions":   {json3(`{"swagger":"2.0","paths":{` + path + `},"definitions":{"Gadget":7}}`), "parse"},
		"an operation that is nothing at all":   {json3(`{"swagger":"2.0","paths":{"/apis/example.com/v1/gadgets":null}}`), ""},
		"a document without what it is called":  {json3(`{"swagger":"2.0","paths":{` + path + `},"definitions":{"Gadget":{"type":"object"}}}`), ""},
		"a response instead of the definitions": {json3(`{"swagger":"2.0","paths":{` + path + `},"responses":{"Gadget":{"description":"x"}}}`), "leads nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := remotetest.NewTLS(t, "ns/bad:443", remotetest.Paths{"/openapi/v3": json3(`{"paths":{}}`), "/openapi/v2": c.handler})
			good := remotetest.NewTLS(t, "ns/good:443", remotetest.Paths{"/openapi/v2": json3(v2("/apis/other/v1/things"))})
			h := openV2(t, routeTo(bad), another(good, "other"))
			paths := pathsIn(t, h.get("/openapi/v2"))
			// A reader waits only briefly, also for a good backend.
			for end := time.Now().Add(30 * time.Second); paths["/apis/other/v1/things"] == nil && time.Now().Before(end); {
				paths = pathsIn(t, h.get("/openapi/v2"))
			}
			if paths["/api/v1/pods"] == nil || paths["/apis/other/v1/things"] == nil || paths["/apis/rbac.authorization.k8s.io/v1/roles"] != nil {
				t.Errorf("paths = %v, want pods and things, and no roles", paths)
			}
			if c.trouble != "" && paths["/apis/example.com/v1/gadgets"] != nil {
				t.Error("the path of a bad document is published, want it absent")
			}
			told := func() bool {
				got := h.Problem("v1.example.com")
				return strings.Contains(got, c.trouble) && (c.trouble != "" || got == "")
			}
			// A reader waits only briefly; a slower document is checked when it has arrived.
			for end := time.Now().Add(30 * time.Second); !told() && time.Now().Before(end); {
				h.get("/openapi/v2")
			}
			if !told() {
				t.Errorf("Problem() = %q, want %q", h.Problem("v1.example.com"), c.trouble)
			}
			if w := h.get("/openapi/v2", "Accept", mediaProtobufV2); w.Code != 200 {
				t.Errorf("document as protobuf = %d: %s, want 200", w.Code, w.Body)
			}
		})
	}
}

func TestLastValidV2DocumentIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says := func(what string) http.Handler {
			return remotetest.Paths{"/openapi/v3": json3(`{"paths":{}}`), "/openapi/v2": json3(strings.ReplaceAll(v2("/apis/example.com/v1/gadgets"), "made of two", what))}
		}
		b := remotetest.NewInProcess("ns/gadgets:443", says("first"))
		h := openV2(t, routeTo(b))
		defer h.stop()
		until := func(what string) {
			t.Helper()
			<-time.After(remote.MaxInterval + time.Minute)
			if w := h.get("/openapi/v2"); !strings.Contains(w.Body.String(), what) || !strings.Contains(w.Body.String(), "/api/v1/pods") {
				t.Errorf("document = %d %s, want %s and pods", w.Code, w.Body, what)
			}
		}
		until("first")
		b.Become(says("second"))
		until("second")
		// The upstream aggregator falls back to the first answer that it ever received.
		for name, bad := range map[string]http.Handler{
			"hangs": remotetest.Hangs(), "fails": remotetest.Answers(500, "text/plain", "boom"), "babbles": json3("{"),
			"forgets": remotetest.Paths{"/openapi/v2": json3(v2("/apis/other/v1/things"))},
		} {
			b.Become(bad)
			until("second")
			if name != "forgets" && h.Problem("v1.example.com") == "" {
				t.Errorf("a backend that %s: Problem() is empty, want a problem", name)
			}
		}
		b.Become(says("third"))
		until("third")
		h.change(func(table *remote.Table) { table.Routes[0].Available = false })
		until("third")
		h.change(func(table *remote.Table) { table.Routes = nil })
		<-time.After(remote.MaxInterval + time.Minute)
		if w := h.get("/openapi/v2"); strings.Contains(w.Body.String(), "third") {
			t.Errorf("document after the registration was deleted = %s, want it without the backend's part", w.Body)
		}
	})
}

func TestReadersWaitBrieflyForSlowBackends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := remotetest.NewInProcess("ns/slow:443", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-time.After(3 * time.Second)
			json3(v2("/apis/other/v1/things")).ServeHTTP(w, r)
		}))
		hung := remotetest.NewInProcess("ns/hung:443", remotetest.Hangs())
		dead := remotetest.NewInProcess("ns/dead:443", remotetest.Hangs())
		down := another(dead, "dead")
		down.Available = false
		h := openV2(t, routeTo(hung), another(slow, "other"), down)
		defer h.stop()
		reads := func(what string, atMost time.Duration, complete bool) {
			t.Helper()
			began := time.Now()
			paths := pathsIn(t, h.get("/openapi/v2"))
			if took := time.Since(began); took > atMost {
				t.Errorf("%s took %s, want at most %s", what, took, atMost)
			}
			if paths["/api/v1/pods"] == nil || (paths["/apis/other/v1/things"] != nil) != complete {
				t.Errorf("%s: paths = %v, want pods, and things %t", what, paths, complete)
			}
		}
		reads("the first", answerWait, false)
		reads("the second", 0, false)
		<-time.After(2 * time.Second)
		reads("one after the slow backend has answered", 0, true)
		for _, r := range dead.Requests() {
			if r.URL.Path == "/openapi/v2" {
				t.Errorf("request to an unavailable backend: %s, want none", r.URL)
			}
		}
	})
}

func TestConcurrentReadersShareOneMerge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // readers wait for a backend only briefly, and time stands still while a goroutine runs
		b := remotetest.NewInProcess("ns/gadgets:443", remotetest.Paths{"/openapi/v3": json3(`{"paths":{}}`), "/openapi/v2": json3(v2("/apis/example.com/v1/gadgets"))})
		h := openV2(t, routeTo(b))
		defer h.stop()
		var readers sync.WaitGroup
		for range 50 {
			readers.Go(func() {
				if paths := pathsIn(t, h.get("/openapi/v2")); len(paths) != 2 {
					t.Errorf("paths = %v, want 2", paths)
				}
			})
		}
		readers.Wait()
		asked := 0
		for _, r := range b.Requests() {
			if r.URL.Path == "/openapi/v2" {
				asked++
			}
		}
		if asked != 1 {
			t.Errorf("%d requests to the backend, want 1", asked)
		}
		if made := testutil.CollectAndCount(h.metrics.SwaggerSeconds); made != 1 {
			t.Errorf("%d merges, want 1", made)
		}
	})
}

func TestUnreadDocumentIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etagged := func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"1"`)
			if r.Header.Get("If-None-Match") == `"1"` {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			json3(v2("/apis/example.com/v1/gadgets")).ServeHTTP(w, r)
		}
		b := remotetest.NewInProcess("ns/gadgets:443", remotetest.Paths{"/openapi/v3": json3(`{"paths":{}}`), "/openapi/v2": http.HandlerFunc(etagged)})
		h := openV2(t, routeTo(b))
		defer h.stop()
		if testutil.ToFloat64(h.metrics.SwaggerBytes) != 0 {
			t.Errorf("size of the document before the first read = %v bytes, want 0", testutil.ToFloat64(h.metrics.SwaggerBytes))
		}
		etag := h.get("/openapi/v2").Header().Get("ETag")
		if testutil.ToFloat64(h.metrics.SwaggerBytes) == 0 {
			t.Error("size of the document after a read = 0 bytes, want it kept")
		}
		<-time.After(idleTimeout + idleTimeout/5)
		if testutil.ToFloat64(h.metrics.SwaggerBytes) != 0 {
			t.Errorf("size of the document after the idle timeout = %v bytes, want 0", testutil.ToFloat64(h.metrics.SwaggerBytes))
		}
		if again := h.get("/openapi/v2"); again.Header().Get("ETag") != etag || !strings.Contains(again.Body.String(), "gadgets") {
			t.Errorf("document after it was dropped = %s, want the same as before", again.Body)
		}
	})
}

func TestCanceledReaderGetsError(t *testing.T) {
	b := remotetest.NewTLS(t, "ns/hangs:443", remotetest.Hangs())
	h := openV2(t, routeTo(b))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi/v2", nil).WithContext(ctx))
	if w.Code == 200 {
		t.Errorf("response to a reader that left = %d, want an error", w.Code)
	}
}

// The document that the program is built with is readable with kubectl's library, and its protobuf form in pieces equals the
// whole.
func TestLocalDocumentIsReadableAsProtobuf(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds with the race detector")
	}
	d := openapidocs.Swagger()
	packed, err := packProtobuf(t.Context(), Document{Hash: d.Hash, Packed: d.Packed})
	if err != nil {
		t.Fatal(err)
	}
	inPieces, err := Document{Packed: packed}.unpacked()
	if err != nil {
		t.Fatal(err)
	}
	var got openapi_v2.Document
	if err := proto.Unmarshal(inPieces, &got); err != nil {
		t.Fatal(err)
	}
	asJSON, err := d.JSON()
	if err != nil {
		t.Fatal(err)
	}
	want, err := openapi_v2.ParseDocument(asJSON)
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(&got, want) {
		t.Error("the protobuf form in pieces differs from the whole, want the same")
	}
	models, err := kubeproto.NewOpenAPIData(&got)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"io.k8s.api.core.v1.Pod", "io.k8s.api.rbac.v1.ClusterRole", "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.APIService"} {
		if models.LookupModel(name) == nil {
			t.Errorf("LookupModel(%s) = nil, want a model", name)
		}
	}
}

func TestLocalSourcesAreCreatedWhenRead(t *testing.T) {
	h := open(t, nil)
	made := 0
	say := func(version string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.localV2 = []Source{{Hash: version, Document: func() (Document, error) {
			made++
			return NewDocument("", []byte(`{"swagger":"2.0","paths":{"/apis/`+version+`":{}}}`))
		}}}
	}
	read := func() *httptest.ResponseRecorder { return h.get("/openapi/v2") }
	say("one")
	if made != 0 {
		t.Fatalf("the source was built %d times before the first read, want 0", made)
	}
	for _, c := range []struct {
		version string
		made    int
	}{{"one", 1}, {"one", 1}, {"two", 2}} {
		say(c.version)
		paths := pathsIn(t, read())
		if _, ok := paths["/apis/"+c.version]; !ok || len(paths) != 1 || made != c.made {
			t.Errorf("%s: paths = %v, built %d times, want 1 path, built %d times", c.version, paths, made, c.made)
		}
	}
	h.localV2 = []Source{{Hash: "three", Document: func() (Document, error) { return Document{}, errors.New("broken") }}}
	if w := read(); w.Code != http.StatusOK {
		t.Errorf("document with a source that fails = %d %s, want 200", w.Code, w.Body)
	}
}

func BenchmarkSwagger(b *testing.B) {
	d := openapidocs.Swagger()
	local := []Source{Prepared(Document{Hash: d.Hash, Packed: d.Packed})}
	b.Run("merge", func(b *testing.B) {
		h := open(b, nil)
		h.mu.Lock()
		h.localV2 = local
		h.mu.Unlock()
		b.ReportAllocs()
		for b.Loop() {
			if _, err := h.v2.merge(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("protobuf", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := packProtobuf(b.Context(), Document{Hash: d.Hash, Packed: d.Packed}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("member", func(b *testing.B) {
		body := []byte(v2("/apis/example.com/v1/gadgets"))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := splitByGroupVersion(body, []schema.GroupVersion{gadgets}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func FuzzSplitByGroupVersion(f *testing.F) {
	f.Add([]byte(v2("/apis/example.com/v1/gadgets")))
	f.Add([]byte(`{"swagger":"2.0","paths":{"/apis/example.com/v1":null}}`))
	f.Add([]byte(`{"swagger":"2.0","info":{},"paths":{"/apis/example.com/v1/x":{"get":{"parameters":[{"$ref":"#/parameters/a"}]}}},"parameters":{"a":{"name":"a","in":"query","type":"string"}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		results, err := splitByGroupVersion(body, []schema.GroupVersion{gadgets})
		if err != nil {
			return
		}
		for gv, result := range results {
			if result.err != nil {
				continue
			}
			u := newSwaggerMerger()
			if err := u.addPacked(*result.document); err != nil {
				t.Fatal(err)
			}
			merged, err := u.pack()
			if err != nil {
				t.Fatal(err)
			}
			if merged.Hash != result.document.Hash {
				t.Errorf("hash of the single member %v = %s, want %s", gv, merged.Hash, result.document.Hash)
			}
			if _, err := packProtobuf(t.Context(), merged); err != nil {
				t.Errorf("packProtobuf() of an accepted document failed: %v, want no error", err)
			}
		}
	})
}

// countedSources are local sources that count their builds.
type countedSources struct {
	mu    sync.Mutex
	built map[string]int
}

// source returns a source that waits for gate, unless it is nil, after it has closed begun.
func (c *countedSources) source(hash string, begun, gate chan struct{}) Source {
	return Source{Hash: hash, Document: func() (Document, error) {
		c.mu.Lock()
		c.built[hash]++
		c.mu.Unlock()
		if gate != nil {
			close(begun)
			<-gate
		}
		return NewDocument("", []byte(`{"swagger":"2.0","paths":{"/apis/`+hash+`/v1":{}}}`))
	}}
}

func (c *countedSources) expect(t *testing.T, want map[string]int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !maps.Equal(c.built, want) {
		t.Errorf("builds = %v, want %v", c.built, want)
	}
}

func TestSourceChangeRebuildsOnlyItsDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, nil)
		defer h.stop()
		c := &countedSources{built: map[string]int{}}
		serve := func(hashes ...string) {
			h.mu.Lock()
			h.localV2 = nil
			for _, hash := range hashes {
				h.localV2 = append(h.localV2, c.source(hash, nil, nil))
			}
			h.mu.Unlock()
			if paths := pathsIn(t, h.get("/openapi/v2")); len(paths) != len(hashes) {
				t.Errorf("paths = %v, want those of %v", paths, hashes)
			}
		}
		serve("a", "b1", "c")
		serve("a", "b2", "c")
		c.expect(t, map[string]int{"a": 1, "b1": 1, "b2": 1, "c": 1})
		serve("a", "b1", "c") // b1 was dropped when b2 replaced it
		c.expect(t, map[string]int{"a": 1, "b1": 2, "b2": 1, "c": 1})
		<-time.After(idleTimeout + idleTimeout/5)
		serve("a", "b1", "c")
		c.expect(t, map[string]int{"a": 2, "b1": 3, "b2": 1, "c": 2})
	})
}

// readV2 reads the document until the returned function is called. The channel then has the status code.
func (h *env) readV2(accept string) (leave context.CancelFunc, code chan int) {
	ctx, leave := context.WithCancel(context.Background())
	code = make(chan int, 1)
	go func() {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/openapi/v2", nil).WithContext(ctx)
		r.Header.Set("Accept", accept)
		h.ServeHTTP(w, r)
		code <- w.Code
	}()
	return leave, code
}

func TestMergeEndsWhenLastReaderCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, nil)
		defer h.stop()
		c, begun, gate := &countedSources{built: map[string]int{}}, make(chan struct{}), make(chan struct{})
		h.mu.Lock()
		h.localV2 = []Source{c.source("a", begun, gate), c.source("b", nil, nil)}
		h.mu.Unlock()
		leave, first := h.readV2("application/json")
		<-begun
		leave()
		synctest.Wait()
		leaveToo, second := h.readV2("application/json") // arrives while the canceled merge still builds a
		synctest.Wait()
		leaveToo()
		if code := <-second; code == http.StatusOK {
			t.Errorf("code for the second reader, which left = %d, want an error", code)
		}
		close(gate)
		if code := <-first; code == http.StatusOK {
			t.Errorf("code for the first reader, which left = %d, want an error", code)
		}
		c.expect(t, map[string]int{"a": 1})
		if merges := testutil.ToFloat64(h.metrics.SwaggerBytes); merges != 0 {
			t.Errorf("size of the document = %v bytes, want 0", merges)
		}
		if paths := pathsIn(t, h.get("/openapi/v2")); len(paths) != 2 {
			t.Errorf("paths = %v, want 2", paths)
		}
		c.expect(t, map[string]int{"a": 1, "b": 1}) // the canceled merge kept a
	})
}

func TestMergeContinuesWhileReaderWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, nil)
		defer h.stop()
		c, begun, gate := &countedSources{built: map[string]int{}}, make(chan struct{}), make(chan struct{})
		h.mu.Lock()
		h.localV2 = []Source{c.source("a", begun, gate), c.source("b", nil, nil)}
		h.mu.Unlock()
		leave, _ := h.readV2("application/json")
		<-begun
		stay, second := h.readV2("application/json")
		defer stay()
		synctest.Wait()
		leave()
		synctest.Wait()
		close(gate)
		if code := <-second; code != http.StatusOK {
			t.Errorf("code for the second reader = %d, want 200", code)
		}
		c.expect(t, map[string]int{"a": 1, "b": 1})
	})
}

func TestOneBuildRunsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBuilds()
		var running, most atomic.Int32
		gate := make(chan struct{})
		var readers sync.WaitGroup
		for i := range 6 {
			readers.Go(func() {
				key := fmt.Sprint("build ", i%3)
				got, err := b.do(t.Context(), key, func(context.Context) (any, error) {
					most.Store(max(most.Load(), running.Add(1)))
					defer running.Add(-1)
					<-gate
					return key, nil
				})
				if err != nil || got != key {
					t.Errorf("do(%q) = %v, error %v, want its key", key, got, err)
				}
			})
		}
		synctest.Wait()
		close(gate)
		readers.Wait()
		if got := most.Load(); got != 1 {
			t.Errorf("%d builds ran at once, want 1", got)
		}
	})
}
