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
	// Question and Field are regular expressions of the whole name.
	Question string `json:"question"`
	Field    string `json:"field"`
	// Why it is so.
	Why string `json:"why"`

	question, field *regexp.Regexp
}

func (k *known) compile() (err error) {
	if k.question, err = regexp.Compile("^(?:" + k.Question + ")$"); err != nil {
		return err
	}
	k.field, err = regexp.Compile("^(?:" + k.Field + ")$")
	return err
}

// explain returns the differences that nobody explains, and the explanations of what does not differ.
func explain(found []difference, list []known) (unexplained []difference, idle []known) {
	used := make([]bool, len(list))
	for _, d := range found {
		explained := false
		for i, k := range list {
			if k.question.MatchString(d.Question) && k.field.MatchString(d.Field) {
				explained, used[i] = true, true
			}
		}
		if !explained {
			unexplained = append(unexplained, d)
		}
	}
	for i, k := range list {
		if !used[i] {
			idle = append(idle, k)
		}
	}
	return unexplained, idle
}
