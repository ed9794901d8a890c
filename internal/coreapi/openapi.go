package coreapi

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"portico.dev/internal/coreapi/openapidocs"
	"portico.dev/internal/respond"
)

// newTypeConverter returns a converter with the schema of every served kind: which fields managers own, and by which keys lists
// merge. It takes 3 MiB, less than the alternatives; the converter in client-go parses a document of every Kubernetes API.
func newTypeConverter(schemas map[string]*spec.Schema) (managedfields.TypeConverter, error) {
	converter, err := managedfields.NewTypeConverter(schemas, false)
	if err != nil {
		return nil, fmt.Errorf("read schemas: %w", err)
	}
	return converter, nil
}

// schemasOf returns the schemas of every served kind and of the types they refer to, taken from known.
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
		GetDefinitionName: definitionNamer(c.scheme),
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

// PreparedDocuments returns the OpenAPI v3 documents of served built-in groups and, once Ready, of OptIn and added groups.
func (s *Server) PreparedDocuments() []openapidocs.Document {
	return slices.Concat(s.openAPIv3(), s.added.Load().v3)
}

// TrimmedSwagger is PreparedSwagger without hidden group-versions.
func (s *Server) TrimmedSwagger(hidden func(schema.GroupVersion) bool) openapidocs.Document {
	c := s.cfg.RuntimeConfig
	c.versions = sets.New(c.versions.UnsortedList()...)
	for _, v := range c.table {
		if hidden(v.version) {
			c.versions.Insert(v.version)
		}
	}
	return c.swagger()
}

// PreparedSwagger returns the OpenAPI v2 document of served built-in groups without OptIn groups.
func (s *Server) PreparedSwagger() openapidocs.Document { return s.openAPIv2() }

// documents returns the prepared documents without group-versions that are disabled or not built in. A document is used as it
// was built, at no cost, unless it contains disabled resources: then it is rewritten once.
func (c RuntimeConfig) documents() []openapidocs.Document {
	var docs []openapidocs.Document
	for _, d := range openapidocs.Documents() {
		if version, ok := DocumentVersion(d.Path); ok {
			if !c.ServesVersion(version) {
				continue
			}
			d = c.trimVersion(d, version)
		}
		docs = append(docs, d)
	}
	return docs
}

// swagger returns one document of all versions.
func (c RuntimeConfig) swagger() openapidocs.Document {
	missing := func(d openapidocs.Document) bool {
		version, ok := DocumentVersion(d.Path)
		return ok && !c.isBuiltIn(version)
	}
	if c.AllOn() && !slices.ContainsFunc(openapidocs.Documents(), missing) {
		return openapidocs.Swagger()
	}
	return c.trim(openapidocs.Swagger())
}

// DocumentVersion parses the path of a document: "api/v1" or "apis/<group>/<version>".
func DocumentVersion(path string) (schema.GroupVersion, bool) {
	parts := strings.Split(path, "/")
	switch {
	case len(parts) == 2 && parts[0] == "api":
		return schema.GroupVersion{Version: parts[1]}, true
	case len(parts) == 3 && parts[0] == "apis":
		return schema.GroupVersion{Group: parts[1], Version: parts[2]}, true
	}
	return schema.GroupVersion{}, false
}

func (c RuntimeConfig) trimVersion(d openapidocs.Document, version schema.GroupVersion) openapidocs.Document {
	for at := range c.resources {
		if at.GroupVersion() == version {
			return c.trim(d)
		}
	}
	return d
}

// trim rewrites a document without the paths that are not served. Schemas that only these paths refer to remain.
func (c RuntimeConfig) trim(d openapidocs.Document) openapidocs.Document {
	body, err := d.JSON()
	if err != nil {
		panic(err) // packed by this program
	}
	var document, paths map[string]json.RawMessage
	for _, step := range []struct {
		from []byte
		to   *map[string]json.RawMessage
	}{{body, &document}, {nil, &paths}} {
		if step.from == nil {
			step.from = document["paths"]
		}
		if err := json.Unmarshal(step.from, step.to); err != nil {
			panic(fmt.Errorf("read the OpenAPI document of %s: %w", d.Path, err)) // packed by this program
		}
	}
	for path := range paths {
		if !c.servesPath(path) {
			delete(paths, path)
		}
	}
	document["paths"] = encoded(paths)
	return openapidocs.New(d.Path, encoded(document))
}

func encoded(v map[string]json.RawMessage) json.RawMessage {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // every value was decoded from JSON
	}
	return body
}

// servesPath reports whether a path in a document is served: /apis/<group>/, /apis/<group>/<version>/, or a resource path
// below.
func (c RuntimeConfig) servesPath(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var version schema.GroupVersion
	switch {
	case parts[0] == "api" && len(parts) >= 2:
		version, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case parts[0] == "apis" && len(parts) == 2:
		return slices.ContainsFunc(c.builtIn(), func(v schema.GroupVersion) bool { return v.Group == parts[1] })
	case parts[0] == "apis" && len(parts) >= 3:
		version, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		return true
	}
	if !c.ServesVersion(version) {
		return false
	}
	if len(parts) > 0 && parts[0] == "watch" {
		parts = parts[1:]
	}
	if len(parts) >= 3 && parts[0] == "namespaces" && parts[2] != "status" && parts[2] != "finalize" {
		parts = parts[2:]
	}
	return len(parts) == 0 || c.Serves(version.WithResource(parts[0]))
}

const documentRoot = "/openapi/v3"

// withOpenAPI serves the OpenAPI documents of local resources before next. Mutating policies need them: they read the document
// of each group-version that they change, and poll for changes every five seconds. No document is built or kept for them.
// internal/openapi serves the documents to clients, merged with the documents of backends.
func (s *Server) withOpenAPI(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, ok := strings.CutPrefix(r.URL.Path, documentRoot)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		all := s.packedDocuments()
		if path == "" {
			respond.JSON(w, http.StatusOK, indexOf(all))
			return
		}
		packed, ok := all[strings.TrimPrefix(path, "/")]
		if !ok {
			respond.Error(w, r, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "", "", 0, true))
			return
		}
		unpack(w, packed.body)
	})
}

type packedDocument struct {
	hash string
	body []byte
}

func (s *Server) packedDocuments() map[string]packedDocument {
	all := map[string]packedDocument{}
	for _, d := range s.PreparedDocuments() {
		all[d.Path] = packedDocument{d.Hash, d.Packed}
	}
	for _, d := range s.Documents() {
		all[d.Path] = packedDocument{d.Hash, d.Packed}
	}
	return all
}

func indexOf(all map[string]packedDocument) *handler3.OpenAPIV3Discovery {
	index := &handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}}
	for path, d := range all {
		index.Paths[path] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: documentRoot + "/" + path + "?hash=" + d.hash}
	}
	return index
}

func unpack(w http.ResponseWriter, packed []byte) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		panic(err) // packed by this program
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.Copy(w, r) // an error means that the client has disconnected
}
