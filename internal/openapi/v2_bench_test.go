package openapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/kube-openapi/pkg/handler"

	"portico.dev/internal/coreapi/openapidocs"
	"portico.dev/internal/metrics"
)

// definitionOf returns a definition whose schema has 400 fields with descriptions.
func definitionOf(n int) *apiextensionsv1.CustomResourceDefinition {
	text := strings.Repeat("what the field is for, ", 5)
	leaf := func(prefix string, count int, fields apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
		object := apiextensionsv1.JSONSchemaProps{Type: "object", Description: text, Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
		for i := range count {
			object.Properties[fmt.Sprint(prefix, i)] = fields
		}
		return object
	}
	schema := leaf("spec", 10, leaf("part", 8, leaf("field", 5, apiextensionsv1.JSONSchemaProps{Type: "string", Description: text})))
	names := apiextensionsv1.CustomResourceDefinitionNames{
		Plural: fmt.Sprintf("kinds%d", n), Singular: fmt.Sprintf("kind%d", n), Kind: fmt.Sprintf("Kind%d", n), ListKind: fmt.Sprintf("Kind%dList", n),
	}
	crd := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "example.com", Scope: apiextensionsv1.NamespaceScoped, Names: names,
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &schema},
		}},
	}}
	crd.Name, crd.Status.AcceptedNames = names.Plural+".example.com", names
	return crd
}

func sourceOfDefinition(b *testing.B, n, generation int) Source {
	return Source{Hash: fmt.Sprint(n, "/", generation), Document: func() (Document, error) {
		built, err := builder.BuildOpenAPIV2(definitionOf(n), "v1", builder.Options{V2: true})
		if err != nil {
			b.Fatal(err)
		}
		built.Info, built.Definitions = nil, handler.PruneDefaults(built.Definitions)
		body, err := json.Marshal(built)
		if err != nil {
			b.Fatal(err)
		}
		return NewDocument("", body)
	}}
}

// BenchmarkV2AfterOneChange reads the document after a change of one of 97 large definitions.
func BenchmarkV2AfterOneChange(b *testing.B) {
	const definitions = 97
	sources := []Source{Prepared(Document(openapidocs.Swagger()))}
	for n := range definitions {
		sources = append(sources, sourceOfDefinition(b, n, 0))
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
		sources[1+changed] = sourceOfDefinition(b, changed, generation)
		e, err := s.current(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(e.size()), "document-bytes")
	}
}
