package extension

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/respond"
)

const openapiV3Media = respond.MediaJSON

// openapi is what the hosted resources look like: an index and a document for each group-version in v3, one document
// for all in v2. They are made once, with the host.
type openapi struct {
	index cachedDocument
	v3    map[string]cachedDocument // by "apis/<group>/<version>"
	v2    cachedDocument
}

func newOpenAPI(resources []Resource, serverVersion string) (*openapi, error) {
	o := &openapi{v3: map[string]cachedDocument{}}
	index := map[string]any{}
	for _, group := range groupNames(resources) {
		for _, gv := range groupVersions(resources, group) {
			doc, err := documentV3(resourcesIn(resources, gv), gv, serverVersion)
			if err != nil {
				return nil, err
			}
			path := "apis/" + gv.String()
			if o.v3[path], err = newCachedDocument(openapiV3Media, doc); err != nil {
				return nil, err
			}
			index[path] = map[string]any{"serverRelativeURL": "/openapi/v3/" + path + "?hash=" + o.v3[path].hash}
		}
	}
	var err error
	if o.index, err = newCachedDocument(openapiV3Media, map[string]any{"paths": index}); err != nil {
		return nil, err
	}
	v2, err := documentV2(resources, serverVersion)
	if err != nil {
		return nil, err
	}
	o.v2, err = newCachedDocument(respond.MediaJSON, v2)
	return o, err
}

// serve answers /openapi/v3, /openapi/v3/apis/<group>/<version> and /openapi/v2. It reports whether there is such a
// document.
func (o *openapi) serve(w http.ResponseWriter, r *http.Request) bool {
	switch path := strings.TrimSuffix(r.URL.Path, "/"); {
	case path == "/openapi/v2":
		o.v2.write(w, r)
		return true
	case path == "/openapi/v3":
		o.index.write(w, r)
		return true
	default:
		doc, ok := o.v3[strings.TrimPrefix(path, "/openapi/v3/")]
		if !ok {
			return false
		}
		// A hash names content for ever. A stale one gets the current document, not the redirect that the library
		// answers: a front door refuses to follow a backend's redirects.
		if r.URL.Query().Get("hash") == doc.hash {
			w.Header().Set("Cache-Control", "public, immutable")
			w.Header().Set("Expires", time.Now().Add(365*24*time.Hour).UTC().Format(http.TimeFormat))
		}
		doc.write(w, r)
		return true
	}
}

func documentV3(resources []Resource, gv schema.GroupVersion, serverVersion string) (map[string]any, error) {
	b := newSchemas("#/components/schemas/", true)
	paths := map[string]any{}
	for _, s := range resources {
		item, list, err := b.addResource(s)
		if err != nil {
			return nil, fmt.Errorf("OpenAPI of %s: %w", s.gvr.GroupResource(), err)
		}
		maps.Copy(paths, pathsOf(s, contentV3(item), contentV3(list), parameterV3))
	}
	b.addType(metav1.APIResourceList{})
	paths["/apis/"+gv.String()+"/"] = map[string]any{"get": map[string]any{
		"description": "get available resources",
		"operationId": "get" + camel(gv.Group, gv.Version) + "APIResources",
		"tags":        []string{tag(gv)},
		"responses":   okUnauthorized(contentV3(b.refTo(metav1.APIResourceList{}))),
	}}
	return map[string]any{
		"openapi":    "3.0.0",
		"info":       map[string]any{"title": "Extension API server", "version": serverVersion},
		"paths":      paths,
		"components": map[string]any{"schemas": b.models},
	}, nil
}

func documentV2(resources []Resource, serverVersion string) (map[string]any, error) {
	b := newSchemas("#/definitions/", false)
	paths := map[string]any{}
	for _, s := range resources {
		item, list, err := b.addResource(s)
		if err != nil {
			return nil, fmt.Errorf("OpenAPI of %s: %w", s.gvr.GroupResource(), err)
		}
		maps.Copy(paths, pathsOf(s, map[string]any{"schema": item}, map[string]any{"schema": list}, parameterV2))
	}
	return map[string]any{
		"swagger":     "2.0",
		"info":        map[string]any{"title": "Extension API server", "version": serverVersion},
		"paths":       paths,
		"definitions": b.models,
	}, nil
}

func contentV3(ref map[string]any) map[string]any {
	content := map[string]any{}
	for _, media := range []string{respond.MediaJSON, respond.MediaYAML} {
		content[media] = map[string]any{"schema": ref}
	}
	return map[string]any{"content": content}
}

func parameterV3(name, in, kind, description string, required bool) map[string]any {
	p := map[string]any{"name": name, "in": in, "description": description, "schema": map[string]any{"type": kind, "uniqueItems": true}}
	if required {
		p["required"] = true
	}
	return p
}

func parameterV2(name, in, kind, description string, required bool) map[string]any {
	p := map[string]any{"name": name, "in": in, "description": description, "type": kind, "uniqueItems": true}
	if required {
		p["required"] = true
	}
	return p
}

func okUnauthorized(body map[string]any) map[string]any {
	ok := map[string]any{"description": "OK"}
	maps.Copy(ok, body)
	return map[string]any{"200": ok, "401": map[string]any{"description": "Unauthorized"}}
}

func tag(gv schema.GroupVersion) string {
	return strings.ReplaceAll(strings.TrimSuffix(gv.Group, ".k8s.io"), ".", "_") + "_" + gv.Version
}

func camel(words ...string) string {
	var out strings.Builder
	for _, word := range words {
		for part := range strings.SplitSeq(strings.TrimSuffix(word, ".k8s.io"), ".") {
			if part != "" {
				out.WriteString(strings.ToUpper(part[:1]) + part[1:])
			}
		}
	}
	return out.String()
}

// rawSchema reads a schema that a resource supplied.
func rawSchema(s Resource) (map[string]any, error) {
	var model map[string]any
	if err := json.Unmarshal(s.schema, &model); err != nil {
		return nil, fmt.Errorf("supplied schema: %w", err)
	}
	return model, nil
}
