package declared

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// expression makes a value of an item: a path (.a.b, or @key for what the item was found under), a text with paths in
// braces ("{.host}-{.port}"), or a text that is the same for all.
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

// value is what the expression gives for an item, if all its paths lead somewhere.
func (e expression) value(it item) (any, bool) {
	if len(e.parts) == 1 && e.parts[0].isPath {
		return e.parts[0].path.find(it.value)
	}
	return e.text(it)
}

// text is the value as text.
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

// textOf is v as one would write it down.
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
		return "" // only for what JSON does not have, and v came from it
	}
	return string(raw)
}
