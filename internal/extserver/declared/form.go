package declared

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"portico.dev/internal/nearest"
)

// notes collects the mistakes in one file.
type notes struct {
	file     string
	mistakes MistakesError
}

func (s *notes) at(n *yaml.Node, field, format string, args ...any) {
	m := Mistake{File: s.file, Field: field, Problem: fmt.Sprintf(format, args...)}
	if n != nil {
		m.Line, m.Column = n.Line, n.Column
	}
	s.mistakes = append(s.mistakes, m)
}

// syntaxLine extracts the line number from the text of a parser error, which does not provide it otherwise.
var syntaxLine = regexp.MustCompile(`^yaml: line (\d+): (.*)$`)

func (s *notes) syntax(err error) {
	m := Mistake{File: s.file, Problem: err.Error()}
	if found := syntaxLine.FindStringSubmatch(err.Error()); found != nil {
		m.Line, _ = strconv.Atoi(found[1]) // the regular expression only matches digits
		m.Column, m.Problem = 1, "not YAML: "+found[2]
	}
	s.mistakes = append(s.mistakes, m)
}

// form reads one mapping. Every requested field is a known field; done reports all others. A form for a missing or invalid
// node returns zero values, and its mistake has already been noted.
type form struct {
	notes     *notes
	path      string
	node      *yaml.Node
	keys      []*yaml.Node
	values    map[string]*yaml.Node
	requested []string
}

func newForm(s *notes, n *yaml.Node, path string) *form {
	f := &form{notes: s, path: path, node: resolved(n), values: map[string]*yaml.Node{}}
	if f.node == nil {
		return f
	}
	if f.node.Kind != yaml.MappingNode {
		s.at(f.node, path, "%s: must be a mapping of fields", kindOf(f.node))
		return f
	}
	for i := 0; i+1 < len(f.node.Content); i += 2 {
		key := f.node.Content[i]
		if _, twice := f.values[key.Value]; twice {
			s.at(key, f.field(key.Value), "given twice")
			continue
		}
		f.keys = append(f.keys, key)
		f.values[key.Value] = resolved(f.node.Content[i+1])
	}
	return f
}

// resolved follows an alias. The parser has rejected recursive aliases.
func resolved(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	if n.Tag == "!!null" {
		return "nothing"
	}
	return strconv.Quote(n.Value)
}

func (f *form) field(name string) string {
	if f.path == "" {
		return name
	}
	return f.path + "." + name
}

// value returns the value of a field, nil if it is absent or null.
func (f *form) value(name string) *yaml.Node {
	if !slices.Contains(f.requested, name) {
		f.requested = append(f.requested, name)
	}
	n := f.values[name]
	if n != nil && n.Tag == "!!null" {
		return nil
	}
	return n
}

// wrong notes a mistake at a field, or at the form if the field is absent.
func (f *form) wrong(name, format string, args ...any) {
	n := f.values[name]
	if n == nil {
		n = f.node
	}
	f.notes.at(n, f.field(name), format, args...)
}

// need notes a mistake if the field is absent.
func (f *form) need(name, example string) {
	if f.value(name) == nil && f.node != nil && f.node.Kind == yaml.MappingNode {
		f.wrong(name, "required, such as %s", example)
	}
}

func (f *form) text(name string) string {
	n := f.value(name)
	if n == nil {
		return ""
	}
	return f.textOf(n, f.field(name))
}

func (f *form) textOf(n *yaml.Node, field string) string {
	switch {
	case n.Kind != yaml.ScalarNode:
		f.notes.at(n, field, "%s: must be a string", kindOf(n))
	case n.Tag != "!!str":
		f.notes.at(n, field, "%s: must be a string; put it in quotes", n.Value)
	default:
		return n.Value
	}
	return ""
}

// choice returns a string that must be one of words. The default is the first one.
func (f *form) choice(name string, words ...string) string {
	text := f.text(name)
	if text == "" || slices.Contains(words, text) {
		return cmp.Or(text, words[0])
	}
	hint := ""
	if word := nearest.Word(text, words); word != "" {
		hint = fmt.Sprintf("; did you mean %q?", word)
	}
	f.wrong(name, "%q: must be %s%s", text, sentence(words), hint)
	return words[0]
}

func (f *form) boolean(name string) bool {
	n := f.value(name)
	if n == nil {
		return false
	}
	var b bool
	if err := n.Decode(&b); err != nil || n.Tag != "!!bool" {
		f.wrong(name, "%s: must be true or false", kindOf(n))
	}
	return b
}

func (f *form) integer(name string, otherwise, least, most int64) int64 {
	n := f.value(name)
	if n == nil {
		return otherwise
	}
	var i int64
	if err := n.Decode(&i); err != nil || n.Tag != "!!int" || i < least || i > most {
		f.wrong(name, "%s: must be a whole number between %d and %d", kindOf(n), least, most)
		return otherwise
	}
	return i
}

func (f *form) duration(name string, otherwise, least, most time.Duration) time.Duration {
	n := f.value(name)
	if n == nil {
		return otherwise
	}
	d, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || d < least || d > most {
		f.wrong(name, "%s: must be a duration between %s and %s, such as 30s", kindOf(n), least, most)
		return otherwise
	}
	return d
}

// list returns the elements of a sequence.
func (f *form) list(name string) []*yaml.Node {
	n := f.value(name)
	if n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		f.wrong(name, "%s: must be a list", kindOf(n))
		return nil
	}
	items := make([]*yaml.Node, len(n.Content))
	for i := range n.Content {
		items[i] = resolved(n.Content[i])
	}
	return items
}

func (f *form) element(name string, i int) string { return fmt.Sprintf("%s[%d]", f.field(name), i) }

func (f *form) texts(name string) []string {
	var out []string
	for i, n := range f.list(name) {
		out = append(out, f.textOf(n, f.element(name, i)))
	}
	return out
}

// form returns the form of a nested mapping, which has no fields if the mapping is absent.
func (f *form) form(name string) *form { return newForm(f.notes, f.value(name), f.field(name)) }

// forms returns the forms of the mappings in a list.
func (f *form) forms(name string) []*form {
	var out []*form
	for i, n := range f.list(name) {
		out = append(out, newForm(f.notes, n, f.element(name, i)))
	}
	return out
}

// entries calls each for every field of a mapping with arbitrary keys.
func (f *form) entries(name string, each func(in *form, key string)) {
	in := f.form(name)
	for _, key := range in.keys {
		each(in, key.Value)
	}
	in.noteUnknownFields()
}

func (f *form) present() bool { return f.node != nil }

// noteUnknownFields notes the fields that were not requested.
func (f *form) noteUnknownFields() {
	for _, key := range f.keys {
		if slices.Contains(f.requested, key.Value) {
			continue
		}
		if word := nearest.Word(key.Value, f.requested); word != "" {
			f.notes.at(key, f.field(key.Value), "unknown field; did you mean %q?", word)
		} else {
			f.notes.at(key, f.field(key.Value), "unknown field; known are %s", sentence(slices.Sorted(slices.Values(f.requested))))
		}
	}
}

// Mistake is a mistake in a file.
type Mistake struct {
	File         string
	Line, Column int
	// Field is the path of the field, such as resources[0].source.http.url. Empty if the mistake concerns the entire file.
	Field string
	// Problem describes the value and the expected value.
	Problem string
}

// String returns the mistake as file:line:column: field: problem, which editors recognize.
func (m Mistake) String() string {
	place := m.File
	if m.Line > 0 {
		place = fmt.Sprintf("%s:%d:%d", m.File, m.Line, m.Column)
	}
	if m.Field == "" {
		return place + ": " + m.Problem
	}
	return place + ": " + m.Field + ": " + m.Problem
}

// MistakesError contains all mistakes, so that they can be corrected at once.
type MistakesError []Mistake

// Error returns one line for each mistake.
func (e MistakesError) Error() string {
	lines := make([]string, len(e))
	for i, m := range e {
		lines[i] = m.String()
	}
	return strings.Join(lines, "\n")
}

// orNil returns e sorted by file and position, or nil if it is empty.
func (e MistakesError) orNil() error {
	if len(e) == 0 {
		return nil
	}
	slices.SortStableFunc(e, func(a, b Mistake) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return e
}

// sentence joins words as in "a, b or c".
func sentence(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
