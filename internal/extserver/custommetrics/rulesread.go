package custommetrics

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits for a file. A ConfigMap has at most 1 MiB, and each rule costs queries.
const (
	MaxRulesBytes = 1 << 20
	maxRules      = 1000
	maxFilters    = 100
	maxOverrides  = 200
)

// Rules is the content of a rule file.
type Rules struct {
	// Rules define custom metrics, ExternalRules define external metrics.
	Rules, ExternalRules []*Rule
	// Resource contains the queries for metrics.k8s.io. Nil if the file does not define them.
	Resource *ResourceRules
}

// ReadRules parses a rule file: the configuration itself, or a ConfigMap that contains it. name appears in messages. The
// error is RuleProblems, except for a YAML error without a line number, a file that is too large, and a file without rules.
func ReadRules(name string, data []byte) (*Rules, error) {
	if len(data) > MaxRulesBytes {
		return nil, fmt.Errorf("%s: larger than %d bytes", name, MaxRulesBytes)
	}
	root, offset, err := find(name, data)
	if err != nil {
		return nil, err
	}
	w := &walker{file: name, offset: offset}
	config := &Rules{}
	w.object(root, "", map[string]func(*yaml.Node, string){
		"rules":         w.rules(&config.Rules, false),
		"externalRules": w.rules(&config.ExternalRules, true),
		"resourceRules": w.resourceRules(&config.Resource),
	})
	if len(w.problems) > 0 {
		slices.SortStableFunc(w.problems, func(a, b RuleProblem) int { return cmp.Compare(a.Line, b.Line) })
		return nil, w.problems
	}
	return config, nil
}

// find returns the document that contains the rules, and the number of lines before it.
func find(name string, data []byte) (*yaml.Node, int, error) {
	documents := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		err := documents.Decode(&doc)
		switch {
		case errors.Is(err, io.EOF):
			return nil, 0, fmt.Errorf("%s: no rules in it: want rules, externalRules or resourceRules, or a ConfigMap with a key config.yaml", name)
		case err != nil:
			return nil, 0, syntaxProblem(name, err, 0)
		case len(doc.Content) == 0:
			continue
		}
		root := doc.Content[0]
		if inner := configMapValue(root); inner != nil {
			return inside(name, inner)
		}
		if value(root, "apiVersion") == nil && !empty(root) {
			return root, 0, nil
		}
	}
}

// inside parses the value of a ConfigMap. The offset converts its lines to lines of the file.
func inside(name string, text *yaml.Node) (*yaml.Node, int, error) {
	offset := text.Line - 1
	if text.Style == yaml.LiteralStyle || text.Style == yaml.FoldedStyle {
		offset = text.Line // the text begins on the line after | or >
	}
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text.Value), &doc); err != nil {
		return nil, 0, syntaxProblem(name, err, offset)
	}
	if len(doc.Content) == 0 {
		return nil, 0, fmt.Errorf("%s:%d: the ConfigMap's config.yaml is empty", name, text.Line)
	}
	return doc.Content[0], offset, nil
}

func configMapValue(root *yaml.Node) *yaml.Node {
	if kind := value(root, "kind"); kind == nil || kind.Value != "ConfigMap" {
		return nil
	}
	if data := value(root, "data"); data != nil {
		return value(data, "config.yaml")
	}
	return nil
}

func value(n *yaml.Node, key string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return resolve(n.Content[i+1])
		}
	}
	return nil
}

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): (.*)`)

// syntaxProblem converts an error of the YAML parser to RuleProblems.
func syntaxProblem(name string, err error, offset int) error {
	m := yamlLine.FindStringSubmatch(err.Error())
	if m == nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	line, _ := strconv.Atoi(m[1]) // the regular expression only matches digits
	return RuleProblems{{File: name, Line: line + offset, Text: "not YAML: " + m[2]}}
}

func (w *walker) rules(to *[]*Rule, external bool) func(*yaml.Node, string) {
	return func(n *yaml.Node, field string) {
		w.list(n, field, maxRules, func(n *yaml.Node, field string) {
			*to = append(*to, w.rule(n, field, external))
		})
	}
}

func (w *walker) rule(n *yaml.Node, field string, external bool) *Rule {
	d := draft{node: n, field: field, external: external, mapping: mapping{namespaced: true}}
	w.object(n, field, map[string]func(*yaml.Node, string){
		"seriesQuery":   w.text(&d.seriesQuery),
		"metricsQuery":  func(n *yaml.Node, field string) { d.queryNode = n; w.text(&d.metricsQuery)(n, field) },
		"seriesFilters": w.filters(&d.filters),
		"resources":     w.mapping(&d.mapping, external),
		"name": func(n *yaml.Node, field string) {
			w.object(n, field, map[string]func(*yaml.Node, string){
				"matches": func(n *yaml.Node, field string) { d.matchesNode = n; w.text(&d.matches)(n, field) },
				"as":      func(n *yaml.Node, field string) { d.asNode = n; w.text(&d.as)(n, field) },
			})
		},
	})
	return w.compile(d)
}

func (w *walker) filters(to *[]filter) func(*yaml.Node, string) {
	return func(n *yaml.Node, field string) {
		w.list(n, field, maxFilters, func(n *yaml.Node, field string) {
			var is, isNot string
			w.object(n, field, map[string]func(*yaml.Node, string){"is": w.text(&is), "isNot": w.text(&isNot)})
			if (is == "") == (isNot == "") {
				w.complain(n, field, "want one of is and isNot")
				return
			}
			re, err := regexp.Compile(is + isNot)
			if err != nil {
				w.complain(n, field, "want a regular expression: %v", err)
				return
			}
			*to = append(*to, filter{re, is != ""})
		})
	}
}

// walker reads the nodes of a YAML document and collects all problems.
type walker struct {
	file     string
	offset   int // lines before the document, if it is the value of a ConfigMap
	problems RuleProblems
}

func (w *walker) complain(n *yaml.Node, field, format string, args ...any) {
	if len(w.problems) < maxProblems {
		w.problems = append(w.problems, RuleProblem{File: w.file, Line: n.Line + w.offset, Field: field, Text: fmt.Sprintf(format, args...)})
	}
}

// resolve follows an alias. Problems are reported at the line of the anchor.
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

// object reads a mapping with known keys and passes each value to its reader.
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

// text returns a reader for a string.
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

// flag returns a reader for a boolean.
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

// maxProblems limits the reported problems of a file. Further ones are likely consequences of the first ones.
const maxProblems = 20

// RuleProblem is a problem in a rule file.
type RuleProblem struct {
	// File and Line are the position. Field is the path of the field, such as rules[0].name.as.
	File  string
	Line  int
	Field string
	// Text describes the problem and the expected value.
	Text string
}

func (p RuleProblem) Error() string {
	where := fmt.Sprintf("%s:%d: ", p.File, p.Line)
	if p.Field == "" {
		return where + p.Text
	}
	return where + p.Field + ": " + p.Text
}

// RuleProblems are all problems of a file, in order of their lines.
type RuleProblems []RuleProblem

func (p RuleProblems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].Error()
	}
	return strings.Join(lines, "\n")
}
