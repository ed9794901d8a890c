package custommetrics

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// walker reads nodes of a YAML document and notes what is wrong with them, so that one look finds every mistake.
type walker struct {
	file     string
	offset   int // lines before the document, for one that is the value of a ConfigMap
	problems RuleProblems
}

func (w *walker) complain(n *yaml.Node, field, format string, args ...any) {
	if len(w.problems) < maxProblems {
		w.problems = append(w.problems, RuleProblem{File: w.file, Line: n.Line + w.offset, Field: field, Text: fmt.Sprintf(format, args...)})
	}
}

// resolve follows an alias; the node it stands for has the line that is to be mended.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// entry is one key of a mapping with its value.
type entry struct{ key, value *yaml.Node }

func (w *walker) entries(n *yaml.Node, field, want string) []entry {
	n = resolve(n)
	if empty(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		w.complain(n, field, "want %s, found %s", want, describe(n))
		return nil
	}
	var out []entry
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if seen[key.Value] {
			w.complain(key, join(field, key.Value), "is given twice")
			continue
		}
		seen[key.Value] = true
		out = append(out, entry{key, resolve(n.Content[i+1])})
	}
	return out
}

// object reads a mapping whose keys are known: each is given to its reader.
func (w *walker) object(n *yaml.Node, field string, readers map[string]func(n *yaml.Node, field string)) {
	known := slices.Sorted(maps.Keys(readers))
	for _, e := range w.entries(n, field, "fields "+strings.Join(known, ", ")) {
		read, ok := readers[e.key.Value]
		if !ok {
			w.complain(e.key, join(field, e.key.Value), "is not a field here; want one of %s", strings.Join(known, ", "))
			continue
		}
		read(e.value, join(field, e.key.Value))
	}
}

func (w *walker) list(n *yaml.Node, field string, limit int, item func(n *yaml.Node, field string)) {
	n = resolve(n)
	switch {
	case empty(n):
	case n.Kind != yaml.SequenceNode:
		w.complain(n, field, "want a list, found %s", describe(n))
	case len(n.Content) > limit:
		w.complain(n, field, "has %d entries, more than %d", len(n.Content), limit)
	default:
		for i, child := range n.Content {
			item(resolve(child), fmt.Sprintf("%s[%d]", field, i))
		}
	}
}

// text is a reader of a string.
func (w *walker) text(to *string) func(*yaml.Node, string) {
	return func(n *yaml.Node, field string) {
		if n.Kind != yaml.ScalarNode {
			w.complain(n, field, "want a string, found %s", describe(n))
			return
		}
		if n.Tag != "!!null" {
			*to = n.Value
		}
	}
}

// flag is a reader of true or false.
func (w *walker) flag(to *bool) func(*yaml.Node, string) {
	return func(n *yaml.Node, field string) {
		if err := n.Decode(to); err != nil {
			w.complain(n, field, "want true or false, found %s", describe(n))
		}
	}
}

func empty(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	return fmt.Sprintf("%q", n.Value)
}

func join(field, key string) string {
	if field == "" {
		return key
	}
	return field + "." + key
}
