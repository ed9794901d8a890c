package coreapi

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// newTypeConverter knows the schema of every kind served: which fields managers own, and by which keys lists merge.
// Of the converters there are, this one costs 3 MiB; the one in client-go parses a document of every Kubernetes API.
func newTypeConverter(schemas map[string]*spec.Schema) (managedfields.TypeConverter, error) {
	converter, err := managedfields.NewTypeConverter(schemas, false)
	if err != nil {
		return nil, fmt.Errorf("read schemas: %w", err)
	}
	return converter, nil
}

// schemasOf are the schemas of every kind served, and of what they are made of, taken from known.
func schemasOf(c *codecs, served []servedGroup, known common.GetOpenAPIDefinitions) (map[string]*spec.Schema, error) {
	var names []string
	for _, g := range served {
		for path, s := range g.storage {
			name, err := definitionName(c, g, s)
			if err != nil {
				return nil, fmt.Errorf("schema of %s: %w", path, err)
			}
			names = append(names, name)
		}
	}
	schemas, err := builder3.BuildOpenAPIDefinitionsForResources(&common.OpenAPIV3Config{
		GetDefinitions:    known,
		GetDefinitionName: openapi.NewDefinitionNamer(c.scheme).GetDefinitionName,
	}, names...)
	if err != nil {
		return nil, fmt.Errorf("build schemas: %w", err)
	}
	return schemas, nil
}

func definitionName(c *codecs, g servedGroup, s rest.Storage) (string, error) {
	kind, err := endpoints.GetResourceKind(g.version, s, c.scheme)
	if err != nil {
		return "", err
	}
	obj, err := c.scheme.New(kind)
	if err != nil {
		return "", err
	}
	return util.GetCanonicalTypeName(obj), nil
}
