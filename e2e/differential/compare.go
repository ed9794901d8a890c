package differential

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// nothing is what a field says that is not there.
const nothing = "(nothing)"

// difference is a field that two servers answer differently.
type difference struct {
	Step, Field, Left, Right string
}

func (d difference) String() string {
	return fmt.Sprintf("%s: %s\n  left:  %s\n  right: %s", d.Step, d.Field, d.Left, d.Right)
}

// known is a difference that there is a reason for.
type known struct {
	// Step is the name of a request.
	Step string `json:"step"`
	// Field is a pattern of path.Match, in which * stands for anything but a slash.
	Field string `json:"field"`
	// Why it is so.
	Why string `json:"why"`
}

// compare returns differences in the order of the script.
func compare(all []step, left, right []map[string]string) []difference {
	var out []difference
	for i, s := range all {
		places := maps.Clone(left[i])
		maps.Copy(places, right[i])
		for _, place := range slices.Sorted(maps.Keys(places)) {
			l, r := said(left[i], place), said(right[i], place)
			if l != r {
				out = append(out, difference{s.Name, place, l, r})
			}
		}
	}
	return out
}

func said(fields map[string]string, place string) string {
	if text, ok := fields[place]; ok {
		return text
	}
	return nothing
}

// explain returns the differences that nobody explains, and the explanations of what does not differ.
func explain(found []difference, list []known) (unexplained []difference, idle []known) {
	used := make([]bool, len(list))
	for _, d := range found {
		explained := false
		for i, k := range list {
			if k.matches(d) {
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

// Brackets are part of our places, and not of patterns.
var literal = strings.NewReplacer("[", `\[`, "]", `\]`)

func (k known) matches(d difference) bool {
	if k.Step != d.Step {
		return false
	}
	ok, err := path.Match(literal.Replace(k.Field), d.Field)
	return err == nil && ok
}
