package discovery

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/discovery/remote/remotetest"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	acceptJSON     = "application/json;" + aggregatedParams
	acceptProtobuf = "application/vnd.kubernetes.protobuf;" + aggregatedParams
	acceptYAML     = "application/yaml;" + aggregatedParams
)

// servingEnv is an env with a healthy backend of two group-versions, a dead one that was known and a dead one that was not.
func servingEnv(t testing.TB) *env {
	keep := newMemory()
	keep.values["v1.example.com"] = []byte(`{"uid":"uid","revision":"1","resources":[
		{"resource":"gadgets","responseKind":{"group":"example.com","version":"v1","kind":"Gadget"},"scope":"Namespaced","verbs":["delete","get","list"]}]}`)
	metrics := remotetest.NewTLS(t, "ns/metrics:443", remotetest.Paths{
		"/apis/metrics.k8s.io/v1beta1": legacyList(gvMetrics, metav1.APIResource{Name: "pods", Kind: "PodMetrics", Namespaced: true, Verbs: metav1.Verbs{"get", "list"}}),
		"/apis/metrics.k8s.io/v1": legacyList(schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1"},
			metav1.APIResource{Name: "pods/orphan", Kind: "PodMetrics", Namespaced: true, Verbs: metav1.Verbs{"get"}}),
	})
	dead := func(group, version string) remote.Route {
		return remote.Route{GroupVersion: schema.GroupVersion{Group: group, Version: version}, APIService: version + "." + group, UID: "uid", Revision: "1", Reason: "ServiceNotFound", GroupPriority: 100, VersionPriority: 100}
	}
	gvV1 := schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1"}
	h := newEnv(t, keep, routes(dead("unknown.example.com", "v1alpha1"), dead("example.com", "v1"), routeTo(metrics, gvV1), routeTo(metrics, gvMetrics))...).run(t)
	h.until(t, gvMetrics, "current", current(1))
	h.until(t, gvV1, "current", current(1))
	return h
}

func TestGoldenDocuments(t *testing.T) {
	h := servingEnv(t)
	for file, c := range map[string]struct{ path, accept string }{
		"api.json":                 {"/api", "application/json"},
		"api.aggregated.json":      {"/api", acceptJSON},
		"apis.json":                {"/apis", ""},
		"apis-slash.json":          {"/apis/", acceptJSON + ",*/*"},
		"apis.yaml":                {"/apis", "application/yaml"},
		"apis.aggregated.json":     {"/apis", acceptJSON + ",application/json"},
		"apis.aggregated.yaml":     {"/apis", acceptYAML},
		"apis-metrics.k8s.io.json": {"/apis/metrics.k8s.io", "application/json"},
		"apis-example.com.json":    {"/apis/example.com", "*/*"},
	} {
		t.Run(file, func(t *testing.T) {
			response := h.get(t, c.path, "Accept", c.accept)
			body := read(t, response)
			golden(t, file, body)
			mediaType, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
			if want := "application/" + strings.TrimPrefix(filepath.Ext(file), "."); mediaType != want {
				t.Errorf("Content-Type = %q, want %q", response.Header.Get("Content-Type"), want)
			}
			if v := response.Header.Get("Vary"); v != "Accept" {
				t.Errorf("Vary = %q, want Accept", v)
			}
		})
	}
}

func TestEncodingsShareOneETag(t *testing.T) {
	h := servingEnv(t)
	var tag string
	for _, accept := range []string{acceptJSON, acceptProtobuf, acceptYAML} {
		response := h.get(t, "/apis", "Accept", accept)
		if got := response.Header.Get("Content-Type"); got != accept {
			t.Errorf("Content-Type = %q, want %q", got, accept)
		}
		if got := response.Header.Get("Cache-Control"); got != "public" {
			t.Errorf("Cache-Control of %s = %q, want public", accept, got)
		}
		if tag == "" {
			tag = response.Header.Get("ETag")
		}
		if got := response.Header.Get("ETag"); got != tag || len(got) != 130 { // a hash alone
			t.Errorf("ETag of %s = %q, want %q with 130 bytes", accept, got, tag)
		}
	}
	for _, header := range []string{tag, "W/" + tag, `"x", ` + tag, "*"} {
		response := h.get(t, "/apis", "Accept", acceptProtobuf, "If-None-Match", header)
		if body := read(t, response); response.StatusCode != http.StatusNotModified || len(body) > 0 || response.Header.Get("ETag") != tag {
			t.Errorf("If-None-Match %q: response = %d with %d bytes, want 304 without a body", header, response.StatusCode, len(body))
		}
	}
	if response := h.get(t, "/apis", "Accept", acceptJSON, "If-None-Match", `"x"`); response.StatusCode != http.StatusOK {
		t.Errorf("another tag: response = %d, want 200", response.StatusCode)
	}
	if got := h.get(t, "/apis", "Accept", "application/json").Header.Get("Cache-Control"); got != "" {
		t.Errorf("Cache-Control of a legacy document = %q, want none, so that the chain's value stands", got)
	}
}

func TestEncodingsAreEquivalent(t *testing.T) {
	h := servingEnv(t)
	var fromJSON, fromProtobuf, fromYAML apidiscoveryv2.APIGroupDiscoveryList
	decode(t, h, read(t, h.get(t, "/apis", "Accept", acceptJSON)), &fromJSON)
	decode(t, h, read(t, h.get(t, "/apis", "Accept", acceptProtobuf)), &fromProtobuf)
	if err := yaml.Unmarshal(read(t, h.get(t, "/apis", "Accept", acceptYAML)), &fromYAML); err != nil {
		t.Fatal(err)
	}
	a, b, c := fmt.Sprintf("%+v", fromJSON.Items), fmt.Sprintf("%+v", fromProtobuf.Items), fmt.Sprintf("%+v", fromYAML.Items)
	if a != b || a != c {
		t.Errorf("JSON = %s, protobuf = %s, YAML = %s, want the same", a, b, c)
	}
}

func TestUnsupportedDiscoveryRequestsAreRejected(t *testing.T) {
	h := servingEnv(t)
	for name, c := range map[string]struct {
		method, path, accept string
		code                 int
	}{
		"v2beta1 alone":                {"GET", "/apis", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList", 406},
		"text":                         {"GET", "/apis", "text/plain", 406},
		"aggregated with a slash":      {"GET", "/apis/", acceptJSON, 406},
		"aggregated of one group":      {"GET", "/apis/metrics.k8s.io", acceptJSON, 406},
		"a group that does not exist":  {"GET", "/apis/nowhere.example.com", "", 404},
		"a write":                      {"POST", "/apis", "", 405},
		"a group that is not all ours": {"GET", "/apis/metrics.k8s.io/", "", 200},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(c.method, c.path, nil)
			r.Header.Set("Accept", c.accept)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != c.code {
				t.Errorf("response = %d: %s, want %d", w.Code, w.Body, c.code)
			}
			if c.code >= 400 && !strings.Contains(w.Body.String(), `"kind":"Status"`) {
				t.Errorf("body = %s, want a Status", w.Body)
			}
		})
	}
}

func TestUnknownGroupsAreUnavailableUntilSynced(t *testing.T) {
	h := newEnv(t, newMemory(), localRoutes()...)
	if response := h.get(t, "/apis"); response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
		t.Errorf("GET /apis before the first snapshot = %d, want 503 with Retry-After", response.StatusCode)
	}
	h.table.Synced = false
	h.run(t)
	if response := h.get(t, "/apis/late.example.com"); response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("GET of an unknown group before the table is synced = %d, want 503", response.StatusCode)
	}
	h.change(func(table *remote.Table) { table.Synced = true })
	waitFor(t, "404", func() bool { return h.get(t, "/apis/late.example.com").StatusCode == http.StatusNotFound })
}

func TestLargeDocumentsAreCompressedIfAccepted(t *testing.T) {
	var many []apidiscoveryv2.APIResourceDiscovery
	for i := range maxResources {
		many = append(many, resource(fmt.Sprintf("resource-with-a-name-of-some-length-%d", i), apidiscoveryv2.ScopeCluster, "get"))
	}
	b := remotetest.NewTLS(t, "ns/many:443", remotetest.Paths{"/apis": aggregated(`"1"`, serves(gvGadgets, many...))})
	h := newEnv(t, newMemory(), routes(routeTo(b, gvGadgets))...).run(t)
	h.until(t, gvGadgets, "current", current(maxResources))

	plain := h.get(t, "/apis", "Accept", acceptJSON)
	packed := h.get(t, "/apis", "Accept", acceptJSON, "Accept-Encoding", "gzip")
	if got := packed.Header.Get("Content-Encoding"); got != "gzip" {
		t.Fatalf("Content-Encoding = %q, want gzip", got)
	}
	if plain.Header.Get("ETag") != packed.Header.Get("ETag") {
		t.Errorf("ETags = %s and %s, want the same", plain.Header.Get("ETag"), packed.Header.Get("ETag"))
	}
	if got := fmt.Sprint(packed.Header.Values("Vary")); got != "[Accept Accept-Encoding]" {
		t.Errorf("Vary = %s, want %s", got, "[Accept Accept-Encoding]")
	}
	reader, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(unpacked, read(t, plain)) {
		t.Error("the decompressed body differs from the plain one, want the same")
	}
	if small := h.get(t, "/api", "Accept", acceptJSON, "Accept-Encoding", "gzip"); small.Header.Get("Content-Encoding") != "" {
		t.Errorf("Content-Encoding of a small document = %q, want none", small.Header.Get("Content-Encoding"))
	}
}

func TestHeadHasNoBody(t *testing.T) {
	h := servingEnv(t)
	r := httptest.NewRequest(http.MethodHead, "/apis", nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK || w.Body.Len() != 0 || w.Header().Get("Content-Length") == "0" {
		t.Errorf("HEAD = %d with %d bytes, want 200 without a body and with its length", w.Code, w.Body.Len())
	}
}

func TestWaitReturnsWhenDocumentChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := remotetest.NewInProcess("ns/gadgets:443", remotetest.Paths{"/apis": aggregated(`"1"`, serves(gvGadgets, deletable))})
		h := newEnv(t, newMemory(), routes(routeTo(b, gvGadgets))...).run(t)
		defer h.stop()
		synctest.Wait()
		h.until(t, gvGadgets, "current", current(1))
		tag := h.get(t, "/apis", "Accept", acceptJSON).Header.Get("ETag")

		began := time.Now()
		if response := h.get(t, "/apis?wait=30", "Accept", acceptJSON); response.StatusCode != 200 || time.Since(began) != 0 {
			t.Errorf("without a tag: response = %d after %s, want 200 after 0s", response.StatusCode, time.Since(began))
		}
		if response := h.get(t, "/apis?wait=30", "Accept", acceptJSON, "If-None-Match", tag); response.StatusCode != 304 || time.Since(began) != 30*time.Second {
			t.Errorf("nothing changed: response = %d after %s, want 304 after 30s", response.StatusCode, time.Since(began))
		}
		began = time.Now()
		if response := h.get(t, "/apis?wait=3000", "Accept", acceptJSON, "If-None-Match", tag); response.StatusCode != 304 || time.Since(began) != maxWait {
			t.Errorf("a long wait: response = %d after %s, want 304 after %s", response.StatusCode, time.Since(began), maxWait)
		}
		began = time.Now()
		time.AfterFunc(5*time.Second, func() {
			h.change(func(table *remote.Table) { table.Routes[len(table.Routes)-1].Available = false })
		})
		response := h.get(t, "/apis?wait=30", "Accept", acceptJSON, "If-None-Match", tag)
		if took := time.Since(began); response.StatusCode != 200 || took < 5*time.Second || took > 6*time.Second || response.Header.Get("ETag") == tag {
			t.Errorf("a change: response = %d after %s, want 200 with another tag after 5s", response.StatusCode, took)
		}
	})
}

// The same content has the same bytes on every replica, independent of the history.
func TestReplicasServeSameBytes(t *testing.T) {
	a, b := servingEnv(t), servingEnv(t)
	for _, path := range []string{"/api", "/apis"} {
		one, two := a.get(t, path, "Accept", acceptJSON).Header.Get("ETag"), b.get(t, path, "Accept", acceptJSON).Header.Get("ETag")
		if one != two {
			t.Errorf("%s: ETags of two replicas = %s and %s, want the same", path, one, two)
		}
	}
}

// If only one of two replicas can reach a backend, and the backend then changes, both replicas have the change at once.
func TestReplicasShareStoredDiscovery(t *testing.T) {
	keep := newSharedMemory()
	alive := remotetest.NewTLS(t, "ns/gadgets:443", remotetest.Paths{"/apis": aggregated(`"1"`, serves(gvGadgets, readOnly))})
	hung := remotetest.NewTLS(t, "ns/gadgets:443", remotetest.Hangs())
	a := newEnv(t, keep, routes(routeTo(alive, gvGadgets))...).run(t)
	b := newEnv(t, keep, routes(routeTo(hung, gvGadgets))...).run(t)
	agree := func() bool {
		return a.get(t, "/apis", "Accept", acceptJSON).Header.Get("ETag") == b.get(t, "/apis", "Accept", acceptJSON).Header.Get("ETag")
	}
	a.until(t, gvGadgets, "current", current(1))
	waitFor(t, "both to say the same", agree) // its resources do not matter to namespaces, so that both report it as Current
	b.until(t, gvGadgets, "current", current(1))

	alive.Become(remotetest.Paths{"/apis": aggregated(`"2"`, serves(gvGadgets, readOnly, cluster))})
	a.change(func(table *remote.Table) { table.Routes[3].Revision = "2" }) // triggers another poll
	a.until(t, gvGadgets, "longer", current(2))
	began := time.Now()
	waitFor(t, "both to say the same", agree)
	if took := time.Since(began); took > 40*time.Second { // the next poll is after a minute
		t.Errorf("both replicas agree after %s, want at most 40s", took)
	}
}

func read(t testing.TB, response *http.Response) []byte {
	t.Helper()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func decode(t testing.TB, h *env, body []byte, into runtime.Object) {
	t.Helper()
	if _, _, err := h.encoder.codecs.UniversalDeserializer().Decode(body, nil, into); err != nil {
		t.Fatal(err)
	}
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if strings.HasSuffix(file, ".json") {
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, got, "", "  "); err != nil {
			t.Fatalf("Indent(%s) failed: %v, want no error", got, err)
		}
		got = pretty.Bytes()
	}
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s = %s, want %s; run with -update if the new document is correct", path, got, want)
	}
}

func TestNegotiateAggregated(t *testing.T) {
	const (
		v2     = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
		v2beta = ";g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
		js, pb = "application/json", "application/vnd.kubernetes.protobuf"
		ya     = "application/yaml"
	)
	for name, c := range map[string]struct{ accept, want string }{
		"nothing named":                      {"", ""},
		"anything":                           {"*/*", ""},
		"a browser":                          {"text/html,application/xhtml+xml,*/*;q=0.8", ""},
		"plain JSON":                         {js, ""},
		"what client-go sends":               {js + v2 + "," + js, js},
		"what client-go with protobuf sends": {pb + v2 + "," + js + v2 + "," + pb + "," + js, pb},
		"aggregated wins over a heavier plain clause":  {js + ";q=1, " + js + v2 + ";q=0.1", js},
		"the heavier of two aggregated":                {js + v2 + ";q=0.5," + pb + v2 + ";q=0.9", pb},
		"the first of two equal":                       {ya + v2 + "," + pb + v2, ya},
		"anything aggregated is JSON":                  {"*/*" + v2, js},
		"any application type, aggregated":             {"application/*" + v2, js},
		"v2beta1 alone":                                {js + v2beta, ""},
		"v2beta1 before v2":                            {js + v2beta + "," + pb + v2, pb},
		"other parameters do not matter":               {js + v2 + ";charset=utf-8", js},
		"profile=nopeer is what we answer in any case": {js + v2 + ";profile=nopeer", js},
		"refused by weight":                            {js + v2 + ";q=0", ""},
		"a weight that is none":                        {js + v2 + ";q=heavy", ""},
		"another group":                                {js + ";g=example.com;v=v2;as=APIGroupDiscoveryList", ""},
		"parameters missing":                           {js + ";as=APIGroupDiscoveryList", ""},
		"a media type that we do not write":            {"application/cbor" + v2, ""},
		"a clause that does not parse does no harm":    {";;;,=," + js + v2, js},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := negotiateAggregated(c.accept)
			if got != c.want || ok != (c.want != "") {
				t.Errorf("negotiateAggregated(%q) = %q, %v, want %q", c.accept, got, ok, c.want)
			}
		})
	}
}

func FuzzNegotiate(f *testing.F) {
	f.Add("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json")
	f.Add(";q=NaN")
	f.Fuzz(func(t *testing.T, accept string) {
		if mediaType, ok := negotiateAggregated(accept); ok {
			if _, known := concrete(mediaType); !known {
				t.Errorf("negotiateAggregated(%q) = %q, want a concrete media type", accept, mediaType)
			}
		}
	})
}
