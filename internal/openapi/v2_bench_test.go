package openapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"portico.dev/internal/coreapi/openapidocs"
	"portico.dev/internal/metrics"
)

// sourceOfDefinition returns the document of a custom resource whose schema has 400 fields with descriptions. It is written here, because
// the library that builds such documents links most of k8s.io/apiserver.
func sourceOfDefinition(n, generation int) Source {
	kind, plural := fmt.Sprintf("com.example.v1.Kind%d", n), fmt.Sprintf("kinds%d", n)
	text := strings.Repeat("what the field is for, ", 5)
	object := func(prefix string, count int, fields map[string]any) map[string]any {
		properties := map[string]any{}
		for i := range count {
			properties[fmt.Sprint(prefix, i)] = fields
		}
		return map[string]any{"type": "object", "description": text, "properties": properties}
	}
	schema := object("spec", 10, object("part", 8, object("field", 5, map[string]any{"type": "string", "description": text})))
	schema["x-kubernetes-group-version-kind"] = []map[string]string{{"group": "example.com", "kind": fmt.Sprint("Kind", n), "version": "v1"}}
	reference := map[string]any{"$ref": "#/definitions/" + kind}
	list := map[string]any{"type": "object", "properties": map[string]any{"items": map[string]any{"type": "array", "items": reference}}}
	path := map[string]any{}
	for _, method := range []string{"get", "put", "post", "delete", "patch"} {
		path[method] = map[string]any{"description": text, "responses": map[string]any{
			"200": map[string]any{"description": "OK", "schema": reference}, "201": map[string]any{"description": "Created", "schema": reference},
		}}
	}
	path["get"] = map[string]any{"responses": map[string]any{"200": map[string]any{"description": "OK", "schema": map[string]any{"$ref": "#/definitions/" + kind + "List"}}}}
	resource := "/apis/example.com/v1/namespaces/{namespace}/" + plural
	document := map[string]any{
		"swagger": "2.0", "definitions": map[string]any{kind: schema, kind + "List": list},
		"paths": map[string]any{"/apis/example.com/v1/" + plural: path, resource: path, resource + "/{name}": path, resource + "/{name}/status": path},
	}
	return Source{Hash: fmt.Sprint(n, "/", generation), Document: func() (Document, error) {
		body, err := json.Marshal(document)
		if err != nil {
			return Document{}, err
		}
		return NewDocument("", body)
	}}
}

// BenchmarkV2AfterOneChange reads the document after a change of one of 97 large definitions.
func BenchmarkV2AfterOneChange(b *testing.B) {
	const definitions = 97
	sources := []Source{Prepared(Document(openapidocs.Swagger()))}
	for n := range definitions {
		sources = append(sources, sourceOfDefinition(n, 0))
	}
	s := newV2Publisher(func() []Source { return sources }, zap.NewNop(), metrics.NewOpenAPI(prometheus.NewRegistry()))
	if _, err := s.current(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	generation := 0
	for b.Loop() {
		generation++
		changed := generation % definitions
		sources[1+changed] = sourceOfDefinition(changed, generation)
		e, err := s.current(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(e.size()), "document-bytes")
	}
}
