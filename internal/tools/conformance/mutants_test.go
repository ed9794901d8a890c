package conformance_test

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"
)

// mutants are the faulty servers, by the check that notices.
func mutants() map[string]mutant {
	all := map[string]mutant{}
	for _, some := range []map[string]mutant{documentMutants(), formMutants(), readMutants(), otherMutants()} {
		for id, m := range some {
			m.steady = true
			all[id] = m
		}
	}
	maps.Copy(all, watchMutants())
	return all
}

const (
	legacy  = "/apis/test.portico.dev/v1"
	widgets = legacy + "/widgets"
	gauges  = legacy + "/gauges"
	cog     = legacy + "/namespaces/team-a/widgets/cog"
	schemas = "/openapi/v3/apis/test.portico.dev/v1"
)

var aggregated = accepting("APIGroupDiscoveryList")

// listed adds a resource to both forms of discovery.
func listed(old, young fields) func(http.Handler) http.Handler {
	one := when(at(legacy), edited(func(v fields) { v["resources"] = append(v["resources"].([]any), old) }))
	two := when(both(at("/apis"), aggregated), edited(func(v fields) {
		version := version(v)
		version["resources"] = append(version["resources"].([]any), young)
	}))
	return func(next http.Handler) http.Handler { return one(two(next)) }
}

// version is the first group-version of an aggregated document.
func version(v fields) fields {
	return v["items"].([]any)[0].(fields)["versions"].([]any)[0].(fields)
}

// spare is a resource that can only be used, in both forms.
func spare(name, singular, verb string) func(http.Handler) http.Handler {
	return listed(
		fields{"name": name, "singularName": singular, "kind": "Spare", "namespaced": false, "verbs": []any{verb}},
		fields{"resource": name, "singularResource": singular, "responseKind": fields{"kind": "Spare"}, "scope": "Cluster", "verbs": []any{verb}})
}

var forgetTag = asked(func(r *http.Request) { r.Header.Del("If-None-Match") })

func documentMutants() map[string]mutant {
	return map[string]mutant{
		"discovery/resources": {wrong: when(at(legacy), edited(func(v fields) { v["kind"] = "List" }))},
		"discovery/groups":    {wrong: when(both(at("/apis"), plain), edited(func(v fields) { v["groups"] = []any{} }))},
		"discovery/names":     {wrong: spare("Bad_Name", "", "use")},
		"discovery/singular":  {wrong: spare("spares", "widgets", "use")},
		"discovery/verbs":     {wrong: spare("spares", "", "frobnicate")},
		"discovery/subresources": {wrong: listed(
			fields{"name": "spares/turn", "kind": "Spare", "namespaced": false, "verbs": []any{"get"}},
			fields{"resource": "spares", "responseKind": fields{}, "scope": "Cluster", "verbs": []any{}, "subresources": []any{
				fields{"subresource": "turn", "responseKind": fields{"kind": "Spare"}, "verbs": []any{"get"}}}})},
		"discovery/aggregated": {wrong: when(both(at("/apis"), aggregated), answered(func(rec *httptest.ResponseRecorder) {
			rec.Header().Set("Content-Type", "application/json")
		}))},
		"discovery/agreement": {wrong: when(both(at("/apis"), aggregated), edited(func(v fields) {
			version(v)["resources"].([]any)[0].(fields)["verbs"] = []any{"get"}
		}))},
		"discovery/etag": {wrong: when(at("/apis"), forgetTag)},
		"openapi/v3": {wrong: when(at(schemas), edited(func(v fields) {
			for _, s := range v["components"].(fields)["schemas"].(fields) {
				delete(s.(fields), "x-kubernetes-group-version-kind")
			}
		}))},
		"openapi/paths": {wrong: when(at(schemas), edited(func(v fields) {
			for path := range v["paths"].(fields) {
				if strings.Contains(path, "gauges") {
					delete(v["paths"].(fields), path)
				}
			}
		}))},
		"openapi/references": {wrong: when(at(schemas), edited(func(v fields) {
			v["components"].(fields)["schemas"].(fields)["lost"] = fields{"$ref": "#/components/schemas/nowhere"}
		}))},
		"openapi/etag": {wrong: when(at(schemas), forgetTag)},
		"openapi/v2":   {wrong: when(at("/openapi/v2"), edited(func(v fields) { v["swagger"] = "1.2" }))},
	}
}

func formMutants() map[string]mutant {
	anything := asked(func(r *http.Request) { r.Header.Set("Accept", "*/*") })
	return map[string]mutant{
		"forms/table": {wrong: when(both(at(widgets), accepting("as=Table"), not(asking("watch", ""))), edited(func(v fields) {
			for _, row := range v["rows"].([]any) {
				row.(fields)["cells"] = append(row.(fields)["cells"].([]any), 1)
			}
		}))},
		"forms/include": {wrong: when(asking("includeObject", "Object"), dropping("includeObject"))},
		"forms/metadata-list": {wrong: when(accepting("PartialObjectMetadataList"), edited(func(v fields) {
			v["items"] = v["items"].([]any)[1:]
		}))},
		"forms/metadata": {wrong: when(accepting("PartialObjectMetadata;"), edited(func(v fields) { v["kind"] = "Widget" }))},
		"forms/yaml": {wrong: when(accepting("yaml"), answered(func(rec *httptest.ResponseRecorder) {
			rec.Header().Set("Content-Type", "application/json")
		}))},
		"forms/protobuf": {wrong: when(func(r *http.Request) bool { return r.Header.Get("Accept") == "application/vnd.kubernetes.protobuf" }, anything)},
		"forms/unknown":  {wrong: when(accepting("x-conformance"), anything)},
		"forms/gzip": {wrong: when(func(r *http.Request) bool { return r.Header.Get("Accept-Encoding") != "" }, answered(func(rec *httptest.ResponseRecorder) {
			rec.Header().Set("Content-Encoding", "gzip")
		}))},
		"forms/head": {wrong: when(method(http.MethodHead), answered(func(rec *httptest.ResponseRecorder) { rec.Code = http.StatusInternalServerError }))},
	}
}

// rename changes the metadata of every object in v.
func rename(v any, change func(fields)) {
	switch v := v.(type) {
	case fields:
		if metadata, ok := v["metadata"].(fields); ok && metadata["name"] != nil {
			change(metadata)
		}
		for _, inner := range v {
			rename(inner, change)
		}
	case []any:
		for _, inner := range v {
			rename(inner, change)
		}
	}
}

func readMutants() map[string]mutant {
	lists := both(at(widgets), plain, not(asking("watch", "")))
	return map[string]mutant{
		"objects/list": {wrong: when(both(at(gauges), plain), edited(func(v fields) { v["apiVersion"] = "v1" }))},
		"objects/names": {wrong: when(func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, gauges) && !accepting("yaml")(r) }, edited(func(v fields) {
			if v["kind"] != "Status" {
				rename(v, func(metadata fields) { metadata["namespace"] = "lost" })
			}
		}))},
		"objects/versions": {wrong: when(lists, edited(func(v fields) {
			rename(v, func(metadata fields) { delete(metadata, "resourceVersion") })
		}))},
		"objects/get":             {wrong: when(both(at(cog), plain), edited(func(v fields) { v["kind"] = "Cog" }))},
		"selectors/labels":        {wrong: when(both(lists, asking("labelSelector", ""), not(asking("labelSelector", "("))), dropping("labelSelector"))},
		"selectors/name":          {wrong: when(both(lists, asking("fieldSelector", "metadata.name")), dropping("fieldSelector"))},
		"selectors/malformed":     {wrong: when(asking("labelSelector", "a in (b"), dropping("labelSelector"))},
		"selectors/unknown-field": {wrong: when(asking("fieldSelector", "spec."), dropping("fieldSelector"))},
		"paging/pages": {wrong: when(both(lists, asking("continue", "")), edited(func(v fields) {
			if items, ok := v["items"].([]any); ok {
				v["items"] = items[1:]
			}
		}))},
		"paging/token":    {wrong: when(asking("continue", "conformance"), dropping("continue"))},
		"scope/namespace": {wrong: when(at(legacy+"/namespaces/team-a/widgets"), asked(func(r *http.Request) { r.URL.Path = widgets }))},
		"scope/empty":     {wrong: when(at(legacy+"/namespaces/portico-conformance-nothing/widgets"), answered(func(rec *httptest.ResponseRecorder) { rec.Code = http.StatusNotFound }))},
		"scope/cluster":   {wrong: when(at(legacy+"/namespaces/portico-conformance-nothing/gauges"), asked(func(r *http.Request) { r.URL.Path = gauges }))},
	}
}

func watchMutants() map[string]mutant {
	watching := both(at(widgets), asking("watch", "true"))
	from := both(watching, asking("resourceVersion", ""), not(asking("resourceVersion", "nothing")))
	longAgo := func(r *http.Request) bool { return r.URL.Query().Get("resourceVersion") == "1" }
	initial := both(watching, asking("sendInitialEvents", ""))
	return map[string]mutant{
		"watch/refused": {wrong: when(both(at(gauges), asking("watch", "true")), dropping("watch"))},
		"watch/begins": {wrong: when(both(from, not(asking("allowWatchBookmarks", ""))), func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			next.ServeHTTP(retyped{w}, r)
		})},
		"watch/ends": {timeout: 8 * time.Second, wrong: when(both(from, not(asking("allowWatchBookmarks", "")), not(longAgo)), func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			next.ServeHTTP(w, r)
			<-r.Context().Done()
		})},
		"watch/bookmarks": {wrong: when(both(from, asking("allowWatchBookmarks", "")), events(func(line []byte) []byte {
			return bytes.ReplaceAll(line, []byte(`"kind":"Widget"`), []byte(`"kind":""`))
		}))},
		"watch/expired":   {wrong: when(both(watching, longAgo), answered(func(rec *httptest.ResponseRecorder) { rec.Code = http.StatusInternalServerError }))},
		"watch/malformed": {wrong: when(both(watching, asking("resourceVersion", "nothing")), dropping("resourceVersion"))},
		"watch/table":     {wrong: when(both(watching, accepting("as=Table")), asked(func(r *http.Request) { r.Header.Set("Accept", "application/json") }))},
		"initial/events":  {wrong: when(initial, dropping("sendInitialEvents", "resourceVersionMatch"))},
		"initial/resume": {wrong: when(initial, events(func(line []byte) []byte {
			if !bytes.Contains(line, []byte("initial-events-end")) {
				return line
			}
			return bytes.Replace(line, []byte(`"resourceVersion":"`), []byte(`"resourceVersion":"x`), 1)
		}))},
		"initial/selector":   {wrong: when(initial, dropping("fieldSelector"))},
		"initial/validation": {wrong: when(both(initial, not(asking("resourceVersionMatch", ""))), asked(func(r *http.Request) { r.URL.RawQuery += "&resourceVersionMatch=NotOlderThan" }))},
	}
}

// retyped answers with another Content-Type.
type retyped struct{ http.ResponseWriter }

func (t retyped) Unwrap() http.ResponseWriter { return t.ResponseWriter }

func (t retyped) WriteHeader(code int) {
	if code == http.StatusOK {
		t.Header().Set("Content-Type", "text/plain")
	}
	t.ResponseWriter.WriteHeader(code)
}

func otherMutants() map[string]mutant {
	inText := answered(func(rec *httptest.ResponseRecorder) {
		rec.Body.Reset()
		_, _ = io.WriteString(rec.Body, "404 page not found")
	})
	another := func(code int) func(http.ResponseWriter, *http.Request, http.Handler) {
		return answered(func(rec *httptest.ResponseRecorder) {
			if rec.Code >= 400 {
				rec.Code = code
			}
		})
	}
	return map[string]mutant{
		"errors/object":   {wrong: when(both(method(http.MethodGet), at(gauges+"/portico-conformance-nothing")), edited(func(v fields) { v["reason"] = "" }))},
		"errors/resource": {wrong: when(at(legacy+"/porticoconformancenothing"), inText)},
		"errors/path":     {wrong: when(at("/apis/test.portico.dev/v0portico"), inText)},
		"errors/verb":     {wrong: when(both(method(http.MethodDelete), at(gauges+"/portico-conformance-nothing")), another(http.StatusInternalServerError))},
		"trust/anonymous": {who: func(w *testFrontDoor, r *http.Request) http.Header {
			if len(r.Header.Values("X-Remote-User")) == 0 {
				return masters(r)
			}
			return vouched(w, r)
		}},
		"trust/headers": {who: func(w *testFrontDoor, r *http.Request) http.Header {
			if len(r.TLS.PeerCertificates) == 0 && r.Header.Get("X-Remote-User") != "" {
				return masters(r)
			}
			return vouched(w, r)
		}},
		"trust/certificate": {who: func(w *testFrontDoor, r *http.Request) http.Header {
			if len(r.TLS.PeerCertificates) > 0 && r.TLS.PeerCertificates[0].Subject.CommonName == "front-proxy-client" {
				return http.Header{"X-Remote-User": r.Header.Values("X-Remote-User"), "X-Remote-Group": r.Header.Values("X-Remote-Group")}
			}
			return nil
		}},
		"trust/authorization": {who: func(w *testFrontDoor, r *http.Request) http.Header {
			if w.verified(r) {
				return masters(r)
			}
			return nil
		}},
		"trust/rotation": {rotate: true},
		"write/dry-run":  {write: true, wrong: when(method(http.MethodPost), dropping("dryRun"))},
		"write/create":   {write: true, wrong: when(method(http.MethodPost), another(http.StatusInternalServerError))},
		"write/delete": {write: true, wrong: when(both(method(http.MethodDelete), not(at(gauges+"/portico-conformance-nothing"))), answered(func(rec *httptest.ResponseRecorder) {
			rec.Code = http.StatusOK
		}))},
	}
}
