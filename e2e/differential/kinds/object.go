package kinds

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// path identifies a field from the root, with list indexes as numbers. Values are decoded JSON: objects are maps,
// lists are slices.
type path []string

func (p path) String() string { return strings.Join(p, ".") }

func (p path) with(name string) path { return append(slices.Clone(p), name) }

// clone returns a deep copy.
func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := maps.Clone(v)
		for name, inner := range out {
			out[name] = clone(inner)
		}
		return out
	case []any:
		out := slices.Clone(v)
		for i, inner := range out {
			out[i] = clone(inner)
		}
		return out
	}
	return v
}

// lookup returns the value at p.
func lookup(v any, p path) (any, bool) {
	for _, name := range p {
		switch at := v.(type) {
		case map[string]any:
			inner, ok := at[name]
			if !ok {
				return nil, false
			}
			v = inner
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(at) {
				return nil, false
			}
			v = at[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// gone represents a removed field.
type gone struct{}

// with returns a copy of v with the value at p replaced, or removed if value is gone. It creates missing objects on
// the path.
func with(v any, p path, value any) any {
	if len(p) == 0 {
		return clone(value)
	}
	switch at := v.(type) {
	case []any:
		i, err := strconv.Atoi(p[0])
		if err != nil || i < 0 || i >= len(at) {
			return clone(v)
		}
		out := slices.Clone(at)
		if _, drop := value.(gone); drop && len(p) == 1 {
			return slices.Delete(out, i, i+1)
		}
		out[i] = with(at[i], p[1:], value)
		return out
	case map[string]any:
		out := maps.Clone(at)
		if _, drop := value.(gone); drop && len(p) == 1 {
			delete(out, p[0])
			return out
		}
		out[p[0]] = with(at[p[0]], p[1:], value)
		return out
	default:
		if _, drop := value.(gone); drop {
			return clone(v)
		}
		return map[string]any{p[0]: with(nil, p[1:], value)}
	}
}

// walk visits v and everything in it, outer values before inner ones, and keys in sorted order.
func walk(v any, at path, visit func(path, any)) {
	visit(at, v)
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			walk(v[name], at.with(name), visit)
		}
	case []any:
		for i, inner := range v {
			walk(inner, at.with(strconv.Itoa(i)), visit)
		}
	}
}

// flatten returns the leaves of a value by path.
func flatten(v any) map[string]string {
	out := map[string]string{}
	walk(v, nil, func(at path, v any) {
		switch v := v.(type) {
		case map[string]any:
			if len(v) == 0 {
				out[at.String()] = "{}"
			}
		case []any:
			if len(v) == 0 {
				out[at.String()] = "[]"
			}
		case string:
			out[at.String()] = v
		default:
			out[at.String()] = fmt.Sprint(v)
		}
	})
	return out
}

// text formats a value for use in a name.
func text(v any) string {
	encoded, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(encoded)
}
