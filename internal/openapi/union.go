package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/discovery/remote"
)

// part is the document of one of the backends of a group-version, in the version that the backend serves.
type part struct {
	Document
	version schema.GroupVersion
}

// union is a group-version with several backends.
type union struct {
	version schema.GroupVersion
	parts   []part
}

// unionOf returns the documents of the backends of a route. Until each has been polled once, the APIService's document from
// before the APIRoute is included. custom is the document of this server's custom resources of the group-version, or nil.
// The caller must hold the lock of the collector.
func unionOf(r remote.Route, table remote.Table, records map[string]*record, custom *Document) union {
	u := union{version: r.GroupVersion}
	unasked := false
	for _, name := range r.Parts {
		at := slices.IndexFunc(table.Routes, func(p remote.Route) bool { return p.APIService == name })
		if at >= 0 && table.Routes[at].Local {
			if custom != nil {
				u.parts = append(u.parts, part{*custom, r.GroupVersion})
			}
			continue
		}
		if rec := records[name]; at >= 0 && rec != nil && rec.document != nil {
			u.parts = append(u.parts, part{*rec.document, table.Routes[at].GroupVersion})
		} else if at >= 0 && rec != nil && rec.problem == "" {
			unasked = unasked || table.Routes[at].Available || table.Routes[at].Untested
		}
	}
	if own := records[r.APIService]; unasked && own != nil && own.uid == r.UID && own.document != nil {
		u.parts = append(u.parts, part{*own.document, r.GroupVersion})
	}
	return u
}

// key identifies the content of the union.
func (u *union) key() string {
	var b strings.Builder
	for _, p := range u.parts {
		b.WriteString(p.version.String() + " " + p.Hash + "\n")
	}
	return b.String()
}

// unions caches the documents that were made last.
type unions struct {
	mu   sync.Mutex
	made map[schema.GroupVersion]madeUnion
}

type madeUnion struct {
	key string
	Document
}

// documents returns the documents of the given unions, rebuilding the changed ones, and drops all others from the cache.
func (s *unions) documents(of []union, log *zap.Logger) []Document {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Document
	kept := map[schema.GroupVersion]madeUnion{}
	for _, u := range of {
		if len(u.parts) == 0 {
			continue
		}
		made, ok := s.made[u.version]
		if key := u.key(); !ok || made.key != key {
			document, err := u.merge()
			if err != nil {
				log.Error("omitting a group-version with several backends from OpenAPI", zap.Stringer("group-version", u.version), zap.Error(err))
				continue
			}
			made = madeUnion{key, document}
		}
		kept[u.version] = made
		out = append(out, made.Document)
	}
	s.made = kept
	return out
}

// merge makes one document of version 3. If two backends describe the same entry, the first description is used.
func (u *union) merge() (Document, error) {
	if len(u.parts) == 1 && u.parts[0].version == u.version {
		return u.parts[0].Document, nil
	}
	var whole map[string]any
	for _, p := range u.parts {
		body, err := p.unpacked()
		if err != nil {
			return Document{}, err
		}
		described, err := decodeIn(body, p.version, u.version)
		if err != nil {
			return Document{}, err
		}
		if whole == nil {
			whole = described
			continue
		}
		addMissing(child(whole, "paths"), child(described, "paths"))
		components := child(whole, "components")
		for section := range child(described, "components") {
			addMissing(child(components, section), child(child(described, "components"), section))
		}
	}
	body, err := json.Marshal(whole) // sorted, so that all replicas produce the same bytes
	if err != nil {
		return Document{}, err
	}
	return NewDocument(indexPath(u.version), body)
}

// child returns the object in the given field, creating it if necessary.
func child(of map[string]any, name string) map[string]any {
	have, ok := of[name].(map[string]any)
	if !ok {
		have = map[string]any{}
		of[name] = have
	}
	return have
}

func addMissing(to, from map[string]any) {
	for name, value := range from {
		if _, ok := to[name]; !ok {
			to[name] = value
		}
	}
}

// inVersion converts a document, of either version of OpenAPI, to a different version of its group.
func inVersion(body []byte, from, to schema.GroupVersion) ([]byte, error) {
	if from == to {
		return body, nil
	}
	described, err := decodeIn(body, from, to)
	if err != nil {
		return nil, err
	}
	return json.Marshal(described)
}

// decodeIn is like inVersion but returns the decoded document. Paths and kinds have the new version, and only reads are
// described, because only reads are forwarded to a backend with a different version.
func decodeIn(body []byte, from, to schema.GroupVersion) (map[string]any, error) {
	var described map[string]any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&described); err != nil {
		return nil, fmt.Errorf("decode the OpenAPI document of %s: %w", from, err)
	}
	if from == to {
		return described, nil
	}
	setVersion(described, from, to)
	paths, moved := child(described, "paths"), map[string]any{}
	root := "/" + indexPath(from)
	for path, item := range paths {
		if rest, ok := strings.CutPrefix(path, root); ok && (rest == "" || rest[0] == '/') {
			if operations, ok := item.(map[string]any); ok {
				maps.DeleteFunc(operations, func(name string, _ any) bool { return slices.Contains(writes, name) })
			}
			moved["/"+indexPath(to)+rest] = item
		}
	}
	described["paths"] = moved
	return described, nil
}

// writes are the operations of a path that modify objects.
var writes = []string{"post", "put", "patch", "delete"}

// setVersion changes the version of all described kinds.
func setVersion(v any, from, to schema.GroupVersion) {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if name == kindsField {
				setKinds(value, from, to)
			} else {
				setVersion(value, from, to)
			}
		}
	case []any:
		for _, value := range v {
			setVersion(value, from, to)
		}
	}
}

func setKinds(v any, from, to schema.GroupVersion) {
	switch v := v.(type) {
	case map[string]any:
		if v["group"] == from.Group && v["version"] == from.Version {
			v["version"] = to.Version
		}
	case []any:
		for _, kind := range v {
			setKinds(kind, from, to)
		}
	}
}
