package declared

import "time"

const (
	// maxProperties is the number of keys above which a mapping counts as a table with arbitrary keys instead of a structure.
	maxProperties = 64
	// maxDepth is the depth below which a schema accepts any value.
	maxDepth = 12
)

// Types of values, as bits, because a shape may have several.
const (
	seenString = 1 << iota
	seenInteger
	seenNumber
	seenBoolean
	seenObject
	seenArray
	seenNull
	seenNoDate // a string that is not an RFC 3339 time
)

// shape describes the values that were seen at one path. It only grows, so that the derived schema changes a few times and
// then stays the same.
type shape struct {
	seen       int
	properties map[string]*shape
	elements   *shape // for arrays, and for mappings with too many keys
	table      bool
}

// learn adds a value and reports whether it changed the shape.
func (s *shape) learn(v any, depth int) (news bool) {
	before := s.seen
	switch at := v.(type) {
	case nil:
		s.seen |= seenNull
	case string:
		s.seen |= seenString
		if _, err := time.Parse(time.RFC3339, at); err != nil {
			s.seen |= seenNoDate
		}
	case int64:
		s.seen |= seenInteger
	case float64:
		s.seen |= seenNumber
	case bool:
		s.seen |= seenBoolean
	case []any:
		s.seen |= seenArray
		for _, e := range at {
			if depth < maxDepth && s.element().learn(e, depth+1) {
				news = true
			}
		}
	case map[string]any:
		s.seen |= seenObject
		if depth < maxDepth && s.learnFields(at, depth) {
			news = true
		}
	}
	return news || s.seen != before
}

func (s *shape) element() *shape {
	if s.elements == nil {
		s.elements = &shape{}
	}
	return s.elements
}

func (s *shape) learnFields(fields map[string]any, depth int) (news bool) {
	for key, v := range fields {
		if !s.table && s.properties[key] == nil {
			if len(s.properties) >= maxProperties {
				s.table, s.properties, news = true, nil, true
			} else {
				if s.properties == nil {
					s.properties = map[string]*shape{}
				}
				s.properties[key] = &shape{}
			}
		}
		inner := s.properties[key]
		if s.table {
			inner = s.element()
		}
		if inner.learn(v, depth+1) {
			news = true
		}
	}
	return news
}

// schema returns the structural schema of the shape.
func (s *shape) schema(docs map[string]string, at string) map[string]any {
	out := s.typed(docs, at)
	if s.seen&seenNull != 0 {
		out["nullable"] = true
	}
	if text := docs[at]; text != "" {
		out["description"] = text
	}
	return out
}

func (s *shape) typed(docs map[string]string, at string) map[string]any {
	switch s.seen &^ (seenNull | seenNoDate) {
	case seenString:
		if s.seen&seenNoDate == 0 {
			return map[string]any{"type": "string", "format": "date-time"}
		}
		return map[string]any{"type": "string"}
	case seenInteger:
		return map[string]any{"type": "integer", "format": "int64"}
	case seenNumber, seenNumber | seenInteger:
		return map[string]any{"type": "number", "format": "double"}
	case seenBoolean:
		return map[string]any{"type": "boolean"}
	case seenString | seenInteger:
		return map[string]any{"x-kubernetes-int-or-string": true}
	case seenArray:
		if s.elements == nil {
			return map[string]any{"type": "array", "items": anything()}
		}
		return map[string]any{"type": "array", "items": s.elements.schema(docs, at+"[]")}
	case seenObject:
		return s.mapping(docs, at)
	}
	return anything()
}

func (s *shape) mapping(docs map[string]string, at string) map[string]any {
	if s.table {
		return map[string]any{"type": "object", "additionalProperties": s.elements.schema(docs, at+"[]")}
	}
	if len(s.properties) == 0 {
		return map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	}
	properties := map[string]any{}
	for key, inner := range s.properties {
		below := key
		if at != "" {
			below = at + "." + key
		}
		properties[key] = inner.schema(docs, below)
	}
	return map[string]any{"type": "object", "properties": properties}
}

func anything() map[string]any { return map[string]any{"x-kubernetes-preserve-unknown-fields": true} }
