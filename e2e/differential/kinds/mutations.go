package kinds

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// mutation is a named variant of a valid object.
type mutation struct {
	name   string
	object any
}

// mutations returns the variants of an object in which one field is removed, emptied, changed, or taken from the
// fixture, which has a value for every field of the kind. Only fields at or below under are changed.
func mutations(object, fixture any, under path) []mutation {
	var out []mutation
	add := func(at path, how string, value any) {
		out = append(out, mutation{at.String() + " " + how, with(object, at, value)})
	}
	walk(object, nil, func(at path, v any) {
		if !changes(at, under) {
			return
		}
		add(at, "left out", gone{})
		switch v := v.(type) {
		case string:
			add(at, "empty", "")
			add(at, "of odd letters", "Bad_Value!")
			add(at, "long", strings.Repeat("a", 260))
			add(at, "a number", 7)
		case float64:
			add(at, "negative", -1)
			add(at, "zero", 0)
			add(at, "huge", 2147483647)
			add(at, "a text", "7x")
		case bool:
			add(at, "turned", !v)
		case []any:
			add(at, "empty", []any{})
			if len(v) > 0 {
				add(at, "doubled", append(slices.Clone(v), v[0]))
				add(at, "with something empty", append(slices.Clone(v), emptied(v[0])))
			}
		case map[string]any:
			add(at, "empty", map[string]any{})
			add(at, "with an odd name", with(v, path{"Bad Name!"}, "x"))
		}
	})
	return append(out, grafts(object, fixture, under)...)
}

func emptied(v any) any {
	switch v.(type) {
	case string:
		return ""
	case map[string]any:
		return map[string]any{}
	}
	return v
}

// grafts returns the variants with a field that only the fixture has.
func grafts(object, fixture any, under path) []mutation {
	var out []mutation
	var descend func(fixture any, at path)
	descend = func(fixture any, at path) {
		have, ok := lookup(object, at)
		if !ok {
			if changes(at, under) {
				out = append(out, mutation{at.String() + " of the fixture", with(object, at, fixture)})
			}
			return
		}
		switch f := fixture.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(f)) {
				descend(f[name], at.with(name))
			}
		case []any:
			if list, ok := have.([]any); ok && len(f) > 0 {
				for i := range list {
					descend(f[0], at.with(strconv.Itoa(i)))
				}
			}
		}
	}
	descend(fixture, nil)
	return out
}

// changes reports whether a field is to be changed. Metadata is excluded because it has separate requests. Pod
// templates are excluded below their first levels, because pods are separate subjects.
func changes(at, under path) bool {
	if len(at) == 0 || at[0] == "metadata" || at[0] == "apiVersion" || at[0] == "kind" || at[0] == "status" {
		return false
	}
	if len(at) < len(under) || !slices.Equal(at[:len(under)], under) {
		return false
	}
	i := slices.Index(at, "template")
	return i < 0 || len(at) <= i+3 && !slices.Contains(at[i+1:], "metadata") || len(at) <= i+3
}
