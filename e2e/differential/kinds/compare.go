package kinds

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// difference is a field of an answer that two servers give otherwise.
type difference struct {
	Question, Field, Ours, Theirs string
}

// nothing is what a field says that is not there.
const nothing = "(nothing)"

// compare returns the differences in the order of the questions.
func (r recording) compare(theirs recording, order []string) []difference {
	var out []difference
	for _, name := range order {
		for _, place := range places(r[name], theirs[name]) {
			a, b := said(r[name], place), said(theirs[name], place)
			if a != b {
				out = append(out, difference{name, place, a, b})
			}
		}
	}
	return out
}

func places(a, b map[string]string) []string {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

func said(fields map[string]string, place string) string {
	if text, ok := fields[place]; ok {
		lines := strings.Split(text, "\n") // errors about types come in any order
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	return nothing
}

func (d difference) String() string {
	return fmt.Sprintf("%s\n  %s\n    ours:   %s\n    theirs: %s", d.Question, d.Field, d.Ours, d.Theirs)
}

// known are differences that there is a reason for.
type known struct {
	// Questions and Fields are regular expressions of the whole name. An entry explains every field of it in every question of
	// it. None may hold an alternative: each has to explain something, and of an alternative nobody would know.
	Questions []string `json:"questions"`
	Fields    []string `json:"fields"`
	// Sometimes says that it is a matter of moments, and that nobody misses it where it stays away.
	Sometimes bool `json:"sometimes"`
	// Why it is so.
	Why string `json:"why"`

	questions, fields []*pattern
}

// pattern is a regular expression that knows whether it was of use.
type pattern struct {
	text  string
	whole *regexp.Regexp
	used  bool
}

// escaped is what a backslash takes its meaning from.
var escaped = regexp.MustCompile(`\\.`)

func (k *known) compile() (err error) {
	if k.Why == "" {
		return fmt.Errorf("%s is listed without a reason", strings.Join(k.Questions, ", "))
	}
	if len(k.Questions) == 0 || len(k.Fields) == 0 {
		return fmt.Errorf("%s: no questions or no fields", k.Why)
	}
	if k.questions, err = patterns(k.Questions); err != nil {
		return err
	}
	k.fields, err = patterns(k.Fields)
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

// explains reports whether a difference is among these, and remembers what it was known by.
func (k *known) explains(d difference) bool {
	questions, fields := matching(k.questions, d.Question), matching(k.fields, d.Field)
	if len(questions) == 0 || len(fields) == 0 {
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

// explain returns the differences that nobody explains, and what of the list explains nothing.
func explain(found []difference, list []known) (unexplained []difference, idle []string) {
	for _, d := range found {
		explained := false
		for i := range list {
			explained = list[i].explains(d) || explained
		}
		if !explained {
			unexplained = append(unexplained, d)
		}
	}
	for _, k := range list {
		for _, p := range slices.Concat(k.questions, k.fields) {
			if !p.used && !k.Sometimes {
				idle = append(idle, fmt.Sprintf("%s (%s)", p.text, k.Why))
			}
		}
	}
	return unexplained, idle
}
