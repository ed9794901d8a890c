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

	"portico.dev/internal/coreapi/definitions"
)

// newTypeConverter knows the schema of every kind served: which fields managers own, and by which keys lists merge.
// Of the converters there are, this one costs 3 MiB; the one in client-go parses a document of every Kubernetes API.
func newTypeConverter(c *codecs, served []servedGroup) (managedfields.TypeConverter, error) {
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
		GetDefinitions:    definitions.GetOpenAPIDefinitions,
		GetDefinitionName: openapi.NewDefinitionNamer(c.scheme).GetDefinitionName,
	}, names...)
	if err != nil {
		return nil, fmt.Errorf("build schemas: %w", err)
	}
	converter, err := managedfields.NewTypeConverter(schemas, false)
	if err != nil {
		return nil, fmt.Errorf("read schemas: %w", err)
	}
	return converter, nil
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
