package openapi

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// swaggerMerger merges version 2 documents. The result depends only on their content and order, so that all replicas
// produce the same document.
type swaggerMerger struct {
	info  json.RawMessage
	paths map[string]json.RawMessage
	named map[string]json.RawMessage // without their kinds
	kinds map[string][]string
}

func newSwaggerMerger() *swaggerMerger {
	return &swaggerMerger{paths: map[string]json.RawMessage{}, named: map[string]json.RawMessage{}, kinds: map[string][]string{}}
}

// add appends a document. Existing paths and named entries stay. A named entry of the new document with the same name and a
// different content is renamed.
func (m *swaggerMerger) add(s *swagger) {
	if m.info == nil {
		m.info = s.info
	}
	// Upstream keeps paths by prefix, so that /apis/<group>/<version>/ restores paths that should be removed, and then
	// fails on them (kubernetes/kubernetes#129499).
	s.retain(func(path string) bool { _, taken := m.paths[path]; return !taken })

	bare, kinds := make(map[string]json.RawMessage, len(s.named)), map[string][]string{}
	for key, entry := range s.named {
		bare[key], kinds[key] = splitKinds(entry)
	}
	renamed := m.resolveNames(bare)
	for key, entry := range bare {
		to := key
		if other, ok := renamed[key]; ok {
			to = other
		}
		if _, ok := m.named[to]; !ok {
			m.named[to] = rewriteReferences(entry, renamed)
		}
		for _, kind := range kinds[key] {
			if !slices.Contains(m.kinds[to], kind) {
				m.kinds[to] = append(m.kinds[to], kind)
			}
		}
	}
	for path, item := range s.paths {
		m.paths[path] = rewriteReferences(item, renamed)
	}
}

// resolveNames finds new names for the entries of a new document that conflict with existing names: the first of Name_v2,
// Name_v3 and so on that is free or has the same content. An entry that refers to a renamed one changes too, so it repeats
// until nothing changes. It terminates because numbers only grow.
func (m *swaggerMerger) resolveNames(entries map[string]json.RawMessage) map[string]string {
	keys := slices.Sorted(maps.Keys(entries))
	number, renamed := map[string]int{}, map[string]string{}
	for moved := true; moved; {
		moved = false
		given := map[string]bool{}
		for _, key := range keys {
			to := numbered(key, number[key])
			for given[to] || m.differs(to, entries[key], renamed) {
				number[key] = max(2, number[key]+1)
				to = numbered(key, number[key])
				renamed[key], moved = to, true
			}
			given[to] = true
		}
	}
	return renamed
}

func numbered(key string, n int) string {
	if n == 0 {
		return key
	}
	return fmt.Sprintf("%s_v%d", key, n)
}

func (m *swaggerMerger) differs(key string, entry json.RawMessage, renamed map[string]string) bool {
	held, ok := m.named[key]
	return ok && !bytes.Equal(held, rewriteReferences(entry, renamed))
}

// pack writes the compressed document as a stream, without holding it uncompressed in memory.
func (m *swaggerMerger) pack() (Document, error) {
	var packed bytes.Buffer
	sum, zip := sha512.New(), gzip.NewWriter(&packed)
	w := bufio.NewWriter(io.MultiWriter(sum, zip))
	m.write(w)
	if err := w.Flush(); err != nil {
		return Document{}, fmt.Errorf("compress the OpenAPI v2 document: %w", err)
	}
	if err := zip.Close(); err != nil {
		return Document{}, fmt.Errorf("compress the OpenAPI v2 document: %w", err)
	}
	return Document{Hash: fmt.Sprintf("%X", sum.Sum(nil)), Packed: packed.Bytes()}, nil
}

// writer is a bufio.Writer or a bytes.Buffer, which need no error check after each write.
type writer interface {
	io.Writer
	io.StringWriter
}

func (m *swaggerMerger) write(w writer) {
	named := make(map[string]json.RawMessage, len(m.named))
	for key, bare := range m.named {
		named[key] = joinKinds(bare, m.kinds[key])
	}
	writeSwagger(w, &swagger{info: m.info, paths: m.paths, named: named})
}

func writeSwagger(w writer, s *swagger) {
	info := s.info
	if info == nil {
		info = json.RawMessage(`{"title":"","version":""}`)
	}
	_, _ = fmt.Fprintf(w, `{"swagger":"2.0","info":%s,"paths":`, info)
	writeObject(w, s.paths)
	for _, section := range namedSections {
		entries := map[string]json.RawMessage{}
		for key, entry := range s.named {
			if name, ok := strings.CutPrefix(key, section+"/"); ok {
				entries[name] = entry
			}
		}
		if len(entries) > 0 {
			_, _ = fmt.Fprintf(w, `,%q:`, section)
			writeObject(w, entries)
		}
	}
	_, _ = w.WriteString("}")
}

// writeObject writes the fields sorted by name.
func writeObject(w writer, fields map[string]json.RawMessage) {
	_, _ = w.WriteString("{")
	for i, name := range slices.Sorted(maps.Keys(fields)) {
		if i > 0 {
			_, _ = w.WriteString(",")
		}
		quoted, err := json.Marshal(name)
		if err != nil {
			continue // cannot happen: a string can always be encoded
		}
		_, _ = w.Write(quoted)
		_, _ = w.WriteString(":")
		_, _ = w.Write(fields[name])
	}
	_, _ = w.WriteString("}")
}
