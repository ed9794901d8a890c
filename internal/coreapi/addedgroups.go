package coreapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
	openapihandler "k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"portico.dev/internal/coreapi/definitions"
	"portico.dev/internal/coreapi/openapidocs"
)

// addedDocuments are the OpenAPI documents of groups that a program which embeds the front door has added. They are built at the
// start, because only those of our own groups can be prepared by go generate.
type addedDocuments struct {
	v3 []openapidocs.Document
	v2 *openapidocs.Document // nil: nothing was added
}

// knownDefinitions are the OpenAPI definitions of our own kinds and of those that were added.
func (c *Config) knownDefinitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	known := definitions.GetOpenAPIDefinitions(ref)
	if c.Definitions != nil {
		added := c.Definitions(ref)
		maps.Copy(added, known)
		return added
	}
	return known
}

// describeAdded builds the documents of the group-versions that have none prepared.
func describeAdded(cfg Config, c *codecs, container *restful.Container) (addedDocuments, error) {
	var docs addedDocuments
	prepared := map[schema.GroupVersion]bool{}
	for _, d := range openapidocs.Documents() {
		if version, ok := DocumentVersion(d.Path); ok {
			prepared[version] = true
		}
	}
	var all []common.RouteContainer
	for _, g := range cfg.Groups {
		if prepared[g.Version] || !cfg.RuntimeConfig.ServesVersion(g.Version) {
			continue
		}
		path := "apis/" + g.Version.String()
		services := slices.DeleteFunc(slices.Clone(container.RegisteredWebServices()), func(s *restful.WebService) bool { return s.RootPath() != "/"+path })
		routes := restfuladapter.AdaptWebServices(services)
		document, err := builder3.BuildOpenAPISpecFromRoutes(routes, cfg.openAPIConfig(c))
		if err != nil {
			return docs, fmt.Errorf("describe %s: %w", g.Version, err)
		}
		body, err := json.Marshal(document)
		if err != nil {
			return docs, fmt.Errorf("describe %s: %w", g.Version, err)
		}
		docs.v3 = append(docs.v3, openapidocs.New(path, body))
		all = append(all, routes...)
	}
	if len(all) == 0 {
		return docs, nil
	}
	three := cfg.openAPIConfig(c)
	document, err := builder.BuildOpenAPISpecFromRoutes(all, &common.Config{
		Info:                           three.Info,
		DefaultResponse:                &spec.Response{ResponseProps: spec.ResponseProps{Description: three.DefaultResponse.Description}},
		GetDefinitionName:              three.GetDefinitionName,
		GetDefinitions:                 three.GetDefinitions,
		GetOperationIDAndTagsFromRoute: three.GetOperationIDAndTagsFromRoute,
	})
	if err != nil {
		return docs, fmt.Errorf("describe added groups in version 2: %w", err)
	}
	document.Definitions = openapihandler.PruneDefaults(document.Definitions)
	body, err := json.Marshal(document)
	if err != nil {
		return docs, fmt.Errorf("describe added groups in version 2: %w", err)
	}
	swagger := openapidocs.New("", body)
	docs.v2 = &swagger
	return docs, nil
}

func (c *Config) openAPIConfig(codec *codecs) *common.OpenAPIV3Config {
	return &common.OpenAPIV3Config{
		Info:              &spec.Info{InfoProps: spec.InfoProps{Title: "Portico", Version: "unversioned"}},
		DefaultResponse:   &spec3.Response{ResponseProps: spec3.ResponseProps{Description: "Default Response."}},
		GetDefinitionName: definitionNamer(codec.scheme),
		GetDefinitions:    c.knownDefinitions,
		GetOperationIDAndTagsFromRoute: func(r common.Route) (string, []string, error) {
			adapted, ok := r.(*restfuladapter.RouteAdapter)
			if !ok {
				return "", nil, fmt.Errorf("the route of %s is a %T", r.Path(), r)
			}
			return openapi.GetOperationIDAndTags(adapted.Route)
		},
	}
}

const groupVersionKinds = "x-kubernetes-group-version-kind"

// definitionNamer names definitions in documents. The library's knows only names without slashes, which types without an
// OpenAPIModelName do not have, and adds internal versions to the kinds of a definition, since every kind is registered twice.
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

// AddedSwagger is the OpenAPI v2 document of added groups, nil if there are none or before Ready.
func (s *Server) AddedSwagger() *openapidocs.Document { return s.added.Load().v2 }
