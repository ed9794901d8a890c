// Package build builds OpenAPI documents of the routes of groups, for go generate and at the startup of programs that add
// groups. It is a separate package so that a front door without added groups does not link it.
package build

import (
	"encoding/json"
	"fmt"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Document builds the document of services for a version of OpenAPI, 2 or 3. name returns the names of definitions, and known
// their schemas.
func Document(version int, services []*restful.WebService, name func(string) (string, spec.Extensions), known common.GetOpenAPIDefinitions) ([]byte, error) {
	routes := restfuladapter.AdaptWebServices(services)
	three := &common.OpenAPIV3Config{
		// A version here would change the hash of every document with every release, and every client would fetch it again.
		Info:                           &spec.Info{InfoProps: spec.InfoProps{Title: "Portico", Version: "unversioned"}},
		DefaultResponse:                &spec3.Response{ResponseProps: spec3.ResponseProps{Description: "Default Response."}},
		GetDefinitionName:              name,
		GetDefinitions:                 known,
		GetOperationIDAndTagsFromRoute: operation,
	}
	if version == 3 {
		document, err := builder3.BuildOpenAPISpecFromRoutes(routes, three)
		if err != nil {
			return nil, err
		}
		return json.Marshal(document)
	}
	document, err := builder.BuildOpenAPISpecFromRoutes(routes, &common.Config{
		Info:                           three.Info,
		DefaultResponse:                &spec.Response{ResponseProps: spec.ResponseProps{Description: three.DefaultResponse.Description}},
		GetDefinitionName:              name,
		GetDefinitions:                 known,
		GetOperationIDAndTagsFromRoute: operation,
	})
	if err != nil {
		return nil, err
	}
	// Defaults are removed, as in kube-apiserver: version 2 does not allow a default next to a reference, and old clients fail.
	document.Definitions = handler.PruneDefaults(document.Definitions)
	return json.Marshal(document)
}

// operation returns the same operation ID as kube-apiserver, because clients are generated from these IDs.
func operation(r common.Route) (string, []string, error) {
	adapted, ok := r.(*restfuladapter.RouteAdapter)
	if !ok {
		return "", nil, fmt.Errorf("the route of %s is a %T", r.Path(), r)
	}
	return openapi.GetOperationIDAndTags(adapted.Route)
}
