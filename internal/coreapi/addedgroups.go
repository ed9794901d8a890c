package coreapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"portico.dev/internal/coreapi/definitions"
	"portico.dev/internal/coreapi/openapidocs"
)

// DocumentBuilder builds the OpenAPI document of services for a version of OpenAPI, 2 or 3. name returns the name of a
// definition.
type DocumentBuilder func(version int, services []*restful.WebService, name func(string) (string, spec.Extensions), known common.GetOpenAPIDefinitions) ([]byte, error)

// addedDocuments contains the OpenAPI documents of OptIn groups that are on, and of groups added by an embedding program. The latter
// are built at startup, because go generate prepares only the documents of the built-in groups.
type addedDocuments struct {
	v3, v2 []openapidocs.Document
}

// knownDefinitions returns the OpenAPI definitions of built-in and added kinds.
func (c *Config) knownDefinitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	known := definitions.GetOpenAPIDefinitions(ref)
	if c.Definitions != nil {
		added := c.Definitions(ref)
		maps.Copy(added, known)
		return added
	}
	return known
}

// describeAdded returns the documents of group-versions that are not in openapidocs.Documents.
func describeAdded(cfg Config, c *codecs, container *restful.Container) (addedDocuments, error) {
	var docs addedDocuments
	prepared := map[schema.GroupVersion]bool{}
	for _, d := range openapidocs.Documents() {
		if version, ok := DocumentVersion(d.Path); ok {
			prepared[version] = true
		}
	}
	for _, d := range openapidocs.OptIn() {
		if version, ok := DocumentVersion(d.Path); ok && cfg.RuntimeConfig.ServesVersion(version) {
			prepared[version] = true
			docs.v3, docs.v2 = append(docs.v3, d.Document), append(docs.v2, d.Swagger)
		}
	}
	var all []*restful.WebService
	for _, g := range cfg.Groups {
		if prepared[g.Version] || !cfg.RuntimeConfig.ServesVersion(g.Version) {
			continue
		}
		if cfg.BuildDocument == nil {
			return docs, fmt.Errorf("describe %s: there is nothing to build its OpenAPI documents with", g.Version)
		}
		path := "apis/" + g.Version.String()
		services := slices.DeleteFunc(slices.Clone(container.RegisteredWebServices()), func(s *restful.WebService) bool { return s.RootPath() != "/"+path })
		body, err := cfg.BuildDocument(3, services, definitionNamer(c.scheme), cfg.knownDefinitions)
		if err != nil {
			return docs, fmt.Errorf("describe %s: %w", g.Version, err)
		}
		docs.v3 = append(docs.v3, openapidocs.New(path, body))
		all = append(all, services...)
	}
	if len(all) == 0 {
		return docs, nil
	}
	body, err := cfg.BuildDocument(2, all, definitionNamer(c.scheme), cfg.knownDefinitions)
	if err != nil {
		return docs, fmt.Errorf("describe added groups in version 2: %w", err)
	}
	docs.v2 = append(docs.v2, openapidocs.New("", body))
	return docs, nil
}

const groupVersionKinds = "x-kubernetes-group-version-kind"

// definitionNamer returns a function that names definitions in documents. k8s.io/apiserver's DefinitionNamer knows only names
// without slashes, but types without an OpenAPIModelName have slashes. It also adds internal versions to the kinds of a
// definition, because every kind is registered twice.
func definitionNamer(scheme *runtime.Scheme) func(string) (string, spec.Extensions) {
	library := openapi.NewDefinitionNamer(scheme).GetDefinitionName
	return func(definition string) (string, spec.Extensions) {
		if strings.Contains(definition, "/") {
			definition = util.ToRESTFriendlyName(definition)
		}
		named, extensions := library(definition)
		if kinds, ok := extensions[groupVersionKinds].([]any); ok {
			extensions[groupVersionKinds] = slices.DeleteFunc(slices.Clone(kinds), func(kind any) bool {
				fields, ok := kind.(map[string]any)
				return ok && fields["version"] == runtime.APIVersionInternal
			})
		}
		return named, extensions
	}
}

// AddedSwagger returns the OpenAPI v2 documents of OptIn and added groups, once Ready, and none before.
func (s *Server) AddedSwagger() []openapidocs.Document { return s.added.Load().v2 }
