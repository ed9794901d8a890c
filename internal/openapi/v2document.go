package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// swagger is a version 2 document, parsed only as far as merging requires: entries stay raw. A fully parsed document takes
// ten times its size.
type swagger struct {
	info  json.RawMessage
	paths map[string]json.RawMessage
	// named contains the entries that can be referenced, by their reference without "#/":
	// "definitions/io.example.v1.Gadget".
	named map[string]json.RawMessage
}

// namedSections are the sections with entries that can be referenced, in the order in which they are written.
var namedSections = []string{"definitions", "parameters", "responses"}

func openSwagger(asJSON []byte) (*swagger, error) {
	var whole struct {
		Info        json.RawMessage            `json:"info"`
		Paths       map[string]json.RawMessage `json:"paths"`
		Definitions map[string]json.RawMessage `json:"definitions"`
		Parameters  map[string]json.RawMessage `json:"parameters"`
		Responses   map[string]json.RawMessage `json:"responses"`
	}
	if err := json.Unmarshal(asJSON, &whole); err != nil {
		return nil, fmt.Errorf("open an OpenAPI v2 document: %w", err)
	}
	s := &swagger{info: whole.Info, paths: whole.Paths, named: map[string]json.RawMessage{}}
	for i, entries := range []map[string]json.RawMessage{whole.Definitions, whole.Parameters, whole.Responses} {
		for name, entry := range entries {
			s.named[namedSections[i]+"/"+name] = entry
		}
	}
	return s, nil
}

// retain removes the paths for which keep returns false, and all entries that are no longer referenced.
func (s *swagger) retain(keep func(path string) bool) {
	before := len(s.paths)
	maps.DeleteFunc(s.paths, func(path string, _ json.RawMessage) bool { return !keep(path) })
	if len(s.paths) == before {
		return
	}
	used := map[string]bool{}
	for _, item := range s.paths {
		s.markUsed(item, used)
	}
	maps.DeleteFunc(s.named, func(key string, _ json.RawMessage) bool { return !used[key] })
}

// markUsed marks all entries that an entry references, directly or indirectly.
func (s *swagger) markUsed(entry []byte, used map[string]bool) {
	for _, key := range references(entry) {
		if !used[key] {
			used[key] = true
			s.markUsed(s.named[key], used)
		}
	}
}

// reference finds references in JSON without white space. Inside a string the quotes would be escaped, so only references
// match, and fields of that name in examples.
var reference = regexp.MustCompile(`"\$ref":"((?:[^"\\]|\\.)*)"`)

func references(entry []byte) []string {
	var keys []string
	for _, match := range reference.FindAllSubmatch(entry, -1) {
		keys = append(keys, referenceKey(string(match[1])))
	}
	return keys
}

// referenceKey parses a reference: a JSON pointer in the fragment of a URL. It returns "" for a reference to another
// document or into an entry.
func referenceKey(ref string) string {
	pointer, ok := strings.CutPrefix(ref, "#/")
	if !ok || strings.Count(pointer, "/") != 1 {
		return ""
	}
	if decoded, err := url.PathUnescape(pointer); err == nil {
		pointer = decoded
	}
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(pointer)
}

// rewriteReferences updates references to renamed entries.
func rewriteReferences(entry json.RawMessage, renamed map[string]string) json.RawMessage {
	if len(renamed) == 0 {
		return entry
	}
	return reference.ReplaceAllFunc(entry, func(match []byte) []byte {
		key := referenceKey(string(reference.FindSubmatch(match)[1]))
		to, ok := renamed[key]
		if !ok {
			return match
		}
		// The added suffix needs no escaping, so that the name can stay unchanged.
		return slices.Concat(match[:len(match)-1], []byte(strings.TrimPrefix(to, key)), []byte(`"`))
	})
}

const kindsField = "x-kubernetes-group-version-kind"

// splitKinds removes the list of kinds from a definition: definitions that differ only in their kinds are merged. The
// result can be compared byte by byte.
func splitKinds(entry json.RawMessage) (bare json.RawMessage, kinds []string) {
	if !bytes.Contains(entry, []byte(`"`+kindsField+`"`)) {
		return entry, nil
	}
	var fields map[string]json.RawMessage
	var list []json.RawMessage
	if json.Unmarshal(entry, &fields) != nil || json.Unmarshal(fields[kindsField], &list) != nil {
		return entry, nil // the kind of an operation, or a property of that name
	}
	delete(fields, kindsField)
	for _, kind := range list {
		kinds = append(kinds, string(kind))
	}
	var body bytes.Buffer
	writeObject(&body, fields)
	return body.Bytes(), kinds
}

// joinKinds is the reverse of splitKinds.
func joinKinds(bare json.RawMessage, kinds []string) json.RawMessage {
	if len(kinds) == 0 {
		return bare
	}
	body := bytes.TrimSuffix(bare, []byte("}"))
	comma := ","
	if len(body) == 1 {
		comma = ""
	}
	return slices.Concat(body, fmt.Appendf(nil, `%s%q:[%s]}`, comma, kindsField, strings.Join(kinds, ",")))
}
