package extension

import (
	"fmt"
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

// document is all that one version of OpenAPI says of resources: the schemas it needs are collected in b.
func (b *schemas) document(resources []Resource) (map[string]any, error) {
	all := map[string]any{}
	for _, s := range resources {
		var err error
		if s.custom != nil {
			err = b.addCustom(s.custom)
		} else {
			err = b.addPaths(s, all)
		}
		if err != nil {
			return nil, fmt.Errorf("OpenAPI of %s: %w", s.gvr, err)
		}
	}
	return all, nil
}

func (b *schemas) addPaths(s Resource, all map[string]any) error {
	one, many, err := b.addResource(s)
	if err != nil {
		return err
	}
	if can := s.source.can(); can.update || can.delete {
		b.addType(metav1.DeleteOptions{})
		b.addType(metav1.Status{})
		b.addType(metav1.Patch{})
	}
	p := paths{s: s, b: b, one: one, many: many, all: all}
	p.add()
	return nil
}

func documentV3(resources []Resource, gv schema.GroupVersion, serverVersion string) (map[string]any, error) {
	b := newSchemas("#/components/schemas/", true)
	paths, err := b.document(resources)
	if err != nil {
		return nil, err
	}
	b.addType(metav1.APIResourceList{})
	paths["/apis/"+gv.String()+"/"] = map[string]any{"get": map[string]any{
		"description": "get available resources",
		"operationId": "get" + camel(gv.Group, gv.Version) + "APIResources",
		"tags":        []string{tag(gv)},
		"responses":   b.responses("get", b.refTo(metav1.APIResourceList{})),
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
	paths, err := b.document(resources)
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"swagger":     "2.0",
		"info":        map[string]any{"title": "Extension API server", "version": serverVersion},
		"paths":       paths,
		"definitions": b.models,
	}, nil
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
