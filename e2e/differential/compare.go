package differential

import (
	"fmt"
	"maps"
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
	// Step is the name of a request; * stands for anything.
	Step string `json:"step"`
	// Field is a place; * stands for anything.
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

func (k known) matches(d difference) bool {
	return like(k.Step, d.Step) && like(k.Field, d.Field)
}

// like reports whether a text is a pattern's, in which * stands for anything.
func like(pattern, text string) bool {
	first, rest, more := strings.Cut(pattern, "*")
	if !more {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, first)
	if !ok {
		return false
	}
	for i := 0; i <= len(text); i++ {
		if like(rest, text[i:]) {
			return true
		}
	}
	return false
}
