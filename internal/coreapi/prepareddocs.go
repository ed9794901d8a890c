package coreapi

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/coreapi/openapidocs"
)

// preparedDocs are the OpenAPI documents of what is built in, without what is turned off.
type preparedDocs struct {
	v3 []openapidocs.Document
	v2 openapidocs.Document
}

// PreparedDocuments are the OpenAPI v3 documents of what is built in and served.
func (s *Server) PreparedDocuments() []openapidocs.Document { return s.prepared().v3 }

// PreparedSwagger is the OpenAPI v2 document of what is built in and served.
func (s *Server) PreparedSwagger() openapidocs.Document { return s.prepared().v2 }

// prepareDocs leaves out of the documents what is turned off. They are used as they were built when all is on, which
// costs nothing; otherwise those that say too much are written anew, once.
func (c RuntimeConfig) prepareDocs() preparedDocs {
	if c.AllOn() {
		return preparedDocs{openapidocs.Documents(), openapidocs.Swagger()}
	}
	docs := preparedDocs{v2: c.trim(openapidocs.Swagger())}
	for _, d := range openapidocs.Documents() {
		if version, ok := documentVersion(d.Path); ok {
			if !c.ServesVersion(version) {
				continue
			}
			d = c.trimVersion(d, version)
		}
		docs.v3 = append(docs.v3, d)
	}
	return docs
}

// documentVersion reads "api/v1" and "apis/<group>/<version>".
func documentVersion(path string) (schema.GroupVersion, bool) {
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

// trim writes a document anew without the paths that lead nowhere. What only they referred to stays among its schemas.
func (c RuntimeConfig) trim(d openapidocs.Document) openapidocs.Document {
	body, err := d.JSON()
	if err != nil {
		panic(err) // it was packed by this program
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
			panic(fmt.Errorf("read the OpenAPI document of %s: %w", d.Path, err)) // likewise
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
		panic(err) // every value was JSON before
	}
	return body
}

// servesPath reads the paths of documents: /apis/<group>/, /apis/<group>/<version>/, and those of resources below.
func (c RuntimeConfig) servesPath(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var version schema.GroupVersion
	switch {
	case parts[0] == "api" && len(parts) >= 2:
		version, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case parts[0] == "apis" && len(parts) == 2:
		for _, v := range c.builtIn() {
			if v.Group == parts[1] {
				return true
			}
		}
		return false
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
