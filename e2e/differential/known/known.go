package known

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Difference is a field of a response with different values at two servers.
type Difference struct {
	Question, Field, Ours, Theirs string
}

func (d Difference) String() string {
	return fmt.Sprintf("%s\n  %s\n    ours:   %s\n    theirs: %s", d.Question, d.Field, d.Ours, d.Theirs)
}

// Entry is a reason for differences.
type Entry struct {
	// Questions and Fields are regular expressions that match whole names. An entry explains every field of Fields in
	// every question of Questions. They must not contain alternatives: every expression must explain something, which
	// cannot be checked for an alternative.
	Questions []string `json:"questions"`
	Fields    []string `json:"fields"`
	// Sometimes is true if the differences depend on timing. Such an entry may explain nothing.
	Sometimes bool `json:"sometimes"`
	// Why is the reason.
	Why string `json:"why"`

	questions, fields []*pattern
}

// pattern is a regular expression that records whether it matched.
type pattern struct {
	text  string
	whole *regexp.Regexp
	used  bool
}

// escaped matches an escaped character.
var escaped = regexp.MustCompile(`\\.`)

// Load reads a list.
func Load(file string) ([]Entry, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var list []Entry
	if err := yaml.UnmarshalStrict(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for i := range list {
		if err := list[i].compile(); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return list, nil
}

func (e *Entry) compile() (err error) {
	if e.Why == "" {
		return fmt.Errorf("%s is listed without a reason", strings.Join(e.Questions, ", "))
	}
	if len(e.Questions) == 0 || len(e.Fields) == 0 {
		return fmt.Errorf("%s: no questions or no fields", e.Why)
	}
	if e.questions, err = patterns(e.Questions); err != nil {
		return err
	}
	e.fields, err = patterns(e.Fields)
	return err
}

func patterns(texts []string) ([]*pattern, error) {
	var out []*pattern
	for _, text := range texts {
		if strings.Contains(escaped.ReplaceAllString(text, ""), "|") {
			return nil, fmt.Errorf("%s holds an alternative: list both, or write \\|", text)
		}
		whole, err := regexp.Compile("^(?:" + text + ")$")
		if err != nil {
			return nil, err
		}
		out = append(out, &pattern{text: text, whole: whole})
	}
	return out, nil
}

// explains reports whether the entry explains a difference, and marks the matching patterns as used.
func (e *Entry) explains(d Difference) bool {
	fields := matching(e.fields, d.Field)
	if len(fields) == 0 {
		return false
	}
	questions := matching(e.questions, d.Question)
	if len(questions) == 0 {
		return false
	}
	for _, p := range slices.Concat(questions, fields) {
		p.used = true
	}
	return true
}

func matching(all []*pattern, name string) []*pattern {
	var out []*pattern
	for _, p := range all {
		if p.whole.MatchString(name) {
			out = append(out, p)
		}
	}
	return out
}

// Explain returns the differences without an explanation, and the patterns that explain nothing.
func Explain(found []Difference, list []Entry) (unexplained []Difference, idle []string) {
	for _, d := range found {
		explained := false
		for i := range list {
			explained = list[i].explains(d) || explained
		}
		if !explained {
			unexplained = append(unexplained, d)
		}
	}
	for _, e := range list {
		for _, p := range slices.Concat(e.questions, e.fields) {
			if !p.used && !e.Sometimes {
				idle = append(idle, fmt.Sprintf("%s (%s)", p.text, e.Why))
			}
		}
	}
	return unexplained, idle
}
