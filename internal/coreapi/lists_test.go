package coreapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/request"
)

// listedAnswer is the response to one list.
type listedAnswer struct {
	code                               int
	contentType, contentEncoding, vary string
	body                               string
}

// fetch calls the handler without client-go.
func (h *testServer) fetch(t *testing.T, path, query string, header http.Header) listedAnswer {
	t.Helper()
	r := httptest.NewRequestWithContext(within(t), http.MethodGet, "https://front"+path+"?"+query, nil)
	r.Header = header
	w := h.serve(t, r.WithContext(audit.WithAuditContext(r.Context())))
	body := w.Body.Bytes()
	if w.Header().Get("Content-Encoding") == "gzip" {
		compressed, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if body, err = io.ReadAll(compressed); err != nil {
			t.Fatal(err)
		}
	}
	return listedAnswer{w.Code, w.Header().Get("Content-Type"), w.Header().Get("Content-Encoding"), w.Header().Get("Vary"), string(body)}
}

// serve sends a request of the administrator to the handler.
func (h *testServer) serve(t *testing.T, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	info, err := request.NewResolver().Info(r)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.Handler().ServeHTTP(w, r.WithContext(apirequest.WithUser(apirequest.WithRequestInfo(r.Context(), info), admin)))
	return w
}

// sameAsTheLibrary compares a list with the list of k8s.io/apiserver, which serves every request with the parameter pretty.
// Revisions and ages can change between the two requests, so the comparison is repeated until both match or the time of the test
// ends. Each list of k8s.io/apiserver is compared with the given number of lists.
func (h *testServer) sameAsTheLibrary(t *testing.T, path, query string, header http.Header, times int) listedAnswer {
	t.Helper()
	ctx := within(t)
	for {
		want := h.fetch(t, path, query+"&pretty=false", header)
		got := want
		for i := 0; i < times && got == want; i++ {
			got = h.fetch(t, path, query, header)
		}
		if got == want {
			return got
		}
		if ctx.Err() != nil {
			at := 0
			for at < min(len(got.body), len(want.body)) && got.body[at] == want.body[at] {
				at++
			}
			cut := func(s string) string { return s[max(0, min(len(s), at)-200):min(len(s), at+200)] }
			got.body, want.body = cut(got.body), cut(want.body)
			t.Fatalf("list of %s?%s differs at byte %d: got %+v\nwant %+v", path, query, at, got, want)
		}
	}
}

const boatsIn = "/apis/sea.example.com/v1/namespaces/work/boats"

// secondVersion serves boats in a second version, whose objects k8s.io/apiextensions-apiserver converts.
const secondVersion = "v2"

func withSecondVersion(t *testing.T) string {
	t.Helper()
	crd := definition(t, boats)
	other := crd.Spec.Versions[0].DeepCopy()
	other.Name, other.Storage = secondVersion, false
	crd.Spec.Versions = append(crd.Spec.Versions, *other)
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	crd.TypeMeta = metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}
	return toYAML(t, crd)
}

// manyOfEach creates config maps and boats with the values that encodings treat differently.
func manyOfEach(t *testing.T, s *crdServer, n int) {
	t.Helper()
	ctx := within2m(t)
	maps := s.typed(t, admin).CoreV1().ConfigMaps("work")
	fleet := s.dynamic.Resource(boatsV1).Namespace("work")
	for i := range n {
		c := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("map-%03d", i), Labels: map[string]string{"third": fmt.Sprint(i % 3), "b": "1", "a": "2"},
				Annotations: map[string]string{"note": `<&> "items":[] "rows":[] ` + "\u2028 é \\ \n"},
			},
			Data:       map[string]string{"z": strings.Repeat("x", 40*(i%7)), "a": "<html>&"},
			BinaryData: map[string][]byte{"raw": {0, 1, 255, byte(i)}},
		}
		if i%10 == 3 { // without managed fields
			c.ManagedFields = []metav1.ManagedFieldsEntry{{}}
		}
		if _, err := maps.Create(ctx, c, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if i%10 == 3 {
			if _, err := maps.Patch(ctx, c.Name, types.JSONPatchType, []byte(`[{"op":"replace","path":"/metadata/managedFields","value":[{}]}]`), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		b := boat(t, fmt.Sprintf("boat-%03d", i), fmt.Sprintf(`{crew: %d, harbour: h%d, cargo: [{name: "<&>\u2028", tons: %d}]}`, 1+i%90, i%3, i))
		b.SetLabels(map[string]string{"third": fmt.Sprint(i % 3)})
		b.SetAnnotations(map[string]string{"note": `"items":[]`})
		if _, err := fleet.Create(ctx, b, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// Every list equals the list of k8s.io/apiserver byte for byte, in every encoding, for every part and for repeated requests.
func TestCachedListsEqualListsOfAPIServer(t *testing.T) {
	t.Parallel()
	s := startCRDServer(t)
	namespace(t, s.typed(t, admin), "work")
	s.define(t, withSecondVersion(t))
	const n = 150
	manyOfEach(t, s, n)
	forms := map[string]string{
		"none":                  "",
		"JSON":                  "application/json",
		"anything":              "*/*",
		"YAML":                  "application/yaml",
		"protobuf":              "application/vnd.kubernetes.protobuf",
		"protobuf or JSON":      "application/vnd.kubernetes.protobuf,application/json",
		"Table":                 "application/json;as=Table;v=v1;g=meta.k8s.io",
		"Table, quoted":         `application/json;as="Table";v="v1";g="meta.k8s.io"`,
		"Table of v1beta1":      "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
		"Table in protobuf":     "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
		"metadata":              "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
		"metadata of v1beta1":   "application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io",
		"metadata in protobuf":  "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
		"what there is not":     "text/html",
		"a transform of others": "application/json;as=Scale;v=v1;g=autoscaling",
	}
	queries := []string{
		"", "limit=60", "limit=0", "labelSelector=third%3D1", "fieldSelector=metadata.name%21%3Dmap-010", "resourceVersion=0", "labelSelector=third%3Dnone",
		"includeObject=Object", "%69ncludeObject=Object", "includeObject=None", "includeObject=Metadata", "includeObject=Wrong", "resourceVersion=1&resourceVersionMatch=NotOlderThan", "limit=-1",
	}
	paths := []string{
		"/api/v1/namespaces/work/configmaps", "/api/v1/configmaps", boatsIn, strings.Replace(boatsIn, "/v1/", "/"+secondVersion+"/", 1), "/apis/sea.example.com/v1/boats",
	}
	for name, accept := range forms {
		t.Run(name, func(t *testing.T) {
			for _, path := range paths {
				asked := queries
				if !slices.Contains([]string{"JSON", "protobuf", "Table", "metadata"}, name) {
					asked = queries[:2]
				}
				for _, query := range asked {
					encodings := []string{""}
					if query == "" {
						encodings = []string{"", "gzip"}
					}
					for _, encoding := range encodings {
						header := http.Header{"Accept": {accept}, "Accept-Encoding": {encoding}}
						s.sameAsTheLibrary(t, path, query, header, 3) // first without a cache entry, then stored, then found
					}
				}
			}
		})
	}
	if s.factory.lists.Bytes() == 0 {
		t.Error("the cache of lists has 0 bytes, want more: the comparison did not use the cache")
	}
	t.Run("page after page", func(t *testing.T) {
		for _, path := range paths[:3] {
			next, pages := "", 0
			for {
				got := s.sameAsTheLibrary(t, path, "limit=40&continue="+url.QueryEscape(next), http.Header{"Accept": {"application/json"}}, 1)
				if pages++; pages > n {
					t.Fatalf("page %d of %s: the list does not end, want at most %d pages", pages, path, n)
				}
				if next = continueOf(t, got.body); next == "" {
					break
				}
			}
			if pages != 4 {
				t.Errorf("%s has %d pages, want 4", path, pages)
			}
		}
	})
}

// The cached encoding of an object is not used after the object changes.
func TestListAfterWriteHasNewObject(t *testing.T) {
	t.Parallel()
	s := startCRDServer(t)
	namespace(t, s.typed(t, admin), "work")
	s.define(t, boats)
	manyOfEach(t, s, 40)
	ctx := within(t)
	maps := s.typed(t, admin).CoreV1().ConfigMaps("work")
	fleet := s.dynamic.Resource(boatsV1).Namespace("work")
	header := http.Header{"Accept": {"application/json"}}
	for i := range 20 {
		sign := fmt.Sprintf("written-%d-time", i)
		if _, err := maps.Patch(ctx, "map-007", types.MergePatchType, []byte(`{"data":{"sign":"`+sign+`"}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := fleet.Patch(ctx, "boat-007", types.MergePatchType, []byte(`{"spec":{"sails":"`+sign+`"}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/api/v1/namespaces/work/configmaps", boatsIn} {
			for range 2 {
				if got := s.fetch(t, path, "", header); strings.Count(got.body, sign) != 1 {
					t.Fatalf("list of %s has %q not exactly once, want it once: %s", path, sign, got.body)
				}
			}
		}
	}
	if err := maps.Delete(ctx, "map-007", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := s.fetch(t, "/api/v1/namespaces/work/configmaps", "", header); strings.Contains(got.body, `"map-007"`) {
		t.Error("the list has the deleted object map-007, want it absent")
	}
}

// auditSink stores the last event.
type auditSink struct{ last *auditinternal.Event }

func (s *auditSink) ProcessEvents(events ...*auditinternal.Event) bool {
	s.last = events[len(events)-1].DeepCopy()
	return true
}

// The audit log contains the whole response if the policy requires it.
func TestAuditLogContainsCompleteLists(t *testing.T) {
	t.Parallel()
	s := startCRDServer(t)
	namespace(t, s.typed(t, admin), "work")
	s.define(t, boats)
	manyOfEach(t, s, 40)
	for _, path := range []string{"/api/v1/namespaces/work/configmaps", boatsIn} {
		for range 3 {
			r := httptest.NewRequestWithContext(audit.WithAuditContext(within(t)), http.MethodGet, "https://front"+path, nil)
			ac, sink := audit.AuditContextFrom(r.Context()), &auditSink{}
			if err := ac.Init(audit.RequestAuditConfig{Level: auditinternal.LevelRequestResponse}, sink); err != nil {
				t.Fatal(err)
			}
			w := s.serve(t, r)
			if !ac.ProcessEventStage(r.Context(), auditinternal.StageResponseComplete) || sink.last.ResponseObject == nil {
				t.Fatalf("last audit event = %+v, want one with a responseObject", sink.last)
			}
			if got := string(sink.last.ResponseObject.Raw); got != w.Body.String() || strings.Count(got, `"uid"`) != 40 {
				t.Errorf("%s: recorded %.300q, want the response %.300q with 40 objects", path, got, w.Body)
			}
		}
	}
}

// A changed definition changes the appearance of objects that were not written again.
func TestListReflectsChangedDefinition(t *testing.T) {
	t.Parallel()
	s := startCRDServer(t)
	namespace(t, s.typed(t, admin), "work")
	crd := s.define(t, boats)
	manyOfEach(t, s, 40)
	header := http.Header{"Accept": {"application/json"}}
	for range 3 {
		if got := s.fetch(t, boatsIn, "", header); strings.Count(got.body, `"sails":"white"`) != 40 {
			t.Fatalf("list of boats = %s, want 40 with the default sails white", got.body)
		}
	}
	ctx := within(t)
	crd, err := s.definitions.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, crd.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	delete(crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties, "sails")
	if _, err = s.definitions.ApiextensionsV1().CustomResourceDefinitions().Update(ctx, crd, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(t, "the field is pruned", func(context.Context) bool {
		return !strings.Contains(s.fetch(t, boatsIn, "", header).body, `"sails"`)
	})
	s.sameAsTheLibrary(t, boatsIn, "", header, 1)
}

func continueOf(t *testing.T, body string) string {
	t.Helper()
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	return list.Continue
}

func toYAML(t *testing.T, v any) string {
	t.Helper()
	data, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
