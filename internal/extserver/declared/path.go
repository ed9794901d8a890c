package declared

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// path selects a value within another one: .a.b, .a[0], .a["b.c"]. It is a subset of JSONPath that needs no evaluator, and
// may begin with $. In the path of items, [*] selects every element.
type path []step

type step struct {
	key   string
	index int // used if key is empty and all is false; negative values count from the end
	all   bool
}

// keyPath is an expression for the key under which the item was found.
const keyPath = "@key"

func parsePath(text string) (path, error) {
	rest := strings.TrimPrefix(text, "$")
	if rest == "" || rest == "." {
		return nil, nil
	}
	if rest[0] != '.' && rest[0] != '[' {
		return nil, fmt.Errorf("%q: a path begins with a dot, such as .%s", text, rest)
	}
	var p path
	for rest != "" {
		var s step
		var err error
		if rest[0] == '[' {
			s, rest, err = bracket(rest)
		} else {
			s, rest, err = name(rest[1:])
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		p = append(p, s)
	}
	return p, nil
}

// name parses the step after a dot.
func name(rest string) (step, string, error) {
	end := strings.IndexAny(rest, ".[")
	if end < 0 {
		end = len(rest)
	}
	switch word := rest[:end]; {
	case word == "" && end < len(rest) && rest[end] == '[':
		return bracket(rest) // jq writes [0] as .[0]
	case word == "":
		return step{}, "", errors.New("a name is missing after a dot")
	case word == "*":
		return step{all: true}, rest[end:], nil
	case strings.ContainsAny(word, "]{}()?@\"'"):
		return step{}, "", fmt.Errorf(`%q: a name with other characters is written as ["..."]`, word)
	default:
		return step{key: word}, rest[end:], nil
	}
}

// bracket parses a step in brackets.
func bracket(rest string) (step, string, error) {
	inside := rest[1:]
	if inside != "" && (inside[0] == '"' || inside[0] == '\'') {
		key, after, ok := strings.Cut(inside[1:], inside[:1]+"]")
		if !ok || key == "" {
			return step{}, "", errors.New("a quoted name does not end")
		}
		return step{key: key}, after, nil
	}
	text, after, ok := strings.Cut(inside, "]")
	if !ok {
		return step{}, "", errors.New("a bracket does not end")
	}
	if text == "*" {
		return step{all: true}, after, nil
	}
	i, err := strconv.Atoi(text)
	if err != nil {
		return step{}, "", fmt.Errorf(`[%s]: must be a number, "a name" or *`, text)
	}
	return step{index: i}, after, nil
}

func (p path) many() bool { return slices.ContainsFunc(p, func(s step) bool { return s.all }) }

// find returns the value at p. It returns false if it does not exist or is null.
func (p path) find(v any) (any, bool) {
	for _, s := range p {
		switch at := v.(type) {
		case map[string]any:
			if s.key == "" {
				return nil, false
			}
			var ok bool
			if v, ok = at[s.key]; !ok {
				return nil, false
			}
		case []any:
			i := s.index
			if i < 0 {
				i += len(at)
			}
			if s.key != "" || i < 0 || i >= len(at) {
				return nil, false
			}
			v = at[i]
		default:
			return nil, false
		}
	}
	return v, v != nil
}

// item is a value that becomes an object, with its key or index.
type item struct {
	value any
	key   string
}

// items returns the values that p selects. Without a [*], a list at p is expanded to its elements.
func (p path) items(v any) ([]item, error) {
	if !p.many() {
		found, ok := p.find(v)
		if !ok {
			return nil, fmt.Errorf("there is nothing at %s", p)
		}
		list, ok := found.([]any)
		if !ok {
			return []item{{value: found}}, nil
		}
		return elements(list), nil
	}
	i := slices.IndexFunc(p, func(s step) bool { return s.all })
	found, ok := p[:i].find(v)
	if !ok {
		return nil, fmt.Errorf("there is nothing at %s", p[:i])
	}
	var here []item
	switch at := found.(type) {
	case []any:
		here = elements(at)
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(at)) {
			here = append(here, item{value: at[key], key: key})
		}
	default:
		return nil, fmt.Errorf("%s is %s, not a list or a mapping", p[:i], typeName(found))
	}
	rest := p[i+1:]
	if len(rest) == 0 {
		return here, nil
	}
	return below(rest, here)
}

// below applies the path after a [*]. Elements without a matching value are skipped.
func below(rest path, here []item) ([]item, error) {
	var out []item
	for _, h := range here {
		if !rest.many() {
			if found, ok := rest.find(h.value); ok {
				out = append(out, item{value: found, key: h.key})
			}
			continue
		}
		inner, err := rest.items(h.value)
		if err == nil {
			out = append(out, inner...)
		}
	}
	return out, nil
}

func elements(list []any) []item {
	out := make([]item, len(list))
	for i, v := range list {
		out[i] = item{value: v, key: strconv.Itoa(i)}
	}
	return out
}

// String returns p in its canonical syntax.
func (p path) String() string {
	if len(p) == 0 {
		return "."
	}
	var b strings.Builder
	for _, s := range p {
		switch {
		case s.all:
			b.WriteString("[*]")
		case s.key == "":
			fmt.Fprintf(&b, "[%d]", s.index)
		case strings.ContainsAny(s.key, ".[]\"'"):
			fmt.Fprintf(&b, "[%q]", s.key)
		default:
			b.WriteString("." + s.key)
		}
	}
	return b.String()
}

func typeName(v any) string {
	switch v.(type) {
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case nil:
		return "null"
	}
	return "a number"
}

// expression computes a value from an item: a path (.a.b, or @key for the key of the item), a string with paths in braces
// ("{.host}-{.port}"), or a constant string.
type expression struct {
	parts []part
}

type part struct {
	literal string
	path    path
	isPath  bool
	isKey   bool
}

func parseExpression(text string) (expression, error) {
	switch {
	case text == "":
		return expression{}, errors.New("must not be empty")
	case strings.HasPrefix(text, "."), strings.HasPrefix(text, "$"), text == keyPath:
		p, err := parsePart(text)
		return expression{parts: []part{p}}, err
	}
	var e expression
	for rest := text; rest != ""; {
		literal, behind, found := strings.Cut(rest, "{")
		if literal != "" {
			e.parts = append(e.parts, part{literal: literal})
		}
		if !found {
			break
		}
		inside, after, closed := strings.Cut(behind, "}")
		if !closed {
			return e, errors.New(`a "{" has no "}"`)
		}
		p, err := parsePart(inside)
		if err != nil {
			return e, err
		}
		e.parts = append(e.parts, p)
		rest = after
	}
	return e, nil
}

func parsePart(text string) (part, error) {
	if text == keyPath {
		return part{isKey: true}, nil
	}
	p, err := parsePath(text)
	if err == nil && p.many() {
		err = errors.New("[*] belongs into items only: here one value is needed")
	}
	return part{path: p, isPath: true}, err
}

// value returns the value of the expression for an item. It returns false if a path has no value.
func (e expression) value(it item) (any, bool) {
	if len(e.parts) == 1 && e.parts[0].isPath {
		return e.parts[0].path.find(it.value)
	}
	return e.text(it)
}

// text returns the value as a string. It returns false if the string is empty.
func (e expression) text(it item) (string, bool) {
	var b strings.Builder
	for _, p := range e.parts {
		switch {
		case p.isKey:
			b.WriteString(it.key)
		case p.isPath:
			v, ok := p.path.find(it.value)
			if !ok {
				return "", false
			}
			b.WriteString(textOf(v))
		default:
			b.WriteString(p.literal)
		}
	}
	return b.String(), b.Len() > 0
}

// textOf formats v as a string.
func textOf(v any) string {
	switch at := v.(type) {
	case string:
		return at
	case bool:
		return strconv.FormatBool(at)
	case int64:
		return strconv.FormatInt(at, 10)
	case float64:
		return strconv.FormatFloat(at, 'f', -1, 64)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return "" // cannot happen, because v was decoded from JSON
	}
	return string(raw)
}
