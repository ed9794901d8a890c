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

// known are differences that there is one reason for. In all its patterns * stands for anything.
type known struct {
	// Steps are names of requests.
	Steps []string `json:"steps"`
	// Fields are places whatever is said there. A * alone is none: it would hide whether the request was answered at all.
	Fields []string `json:"fields"`
	// Left are places and what the left server says there. Any other difference there is not known.
	Left map[string]string `json:"left"`
	// Engine is the implementation of HTTP (--http-engine) with which it is so. Empty: with each.
	Engine string `json:"engine"`
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

// explain returns the differences that nobody explains, and what explanations say of what does not differ: each of their
// patterns must match something.
func explain(found []difference, list []known) (unexplained []difference, idle []string) {
	used := make([]map[string]bool, len(list))
	for i := range list {
		used[i] = map[string]bool{}
	}
	for _, d := range found {
		explained := false
		for i, k := range list {
			explained = k.matches(d, used[i]) || explained
		}
		if !explained {
			unexplained = append(unexplained, d)
		}
	}
	for i, k := range list {
		for _, part := range k.parts() {
			if !used[i][part] {
				idle = append(idle, part+" ("+k.Why+")")
			}
		}
	}
	return unexplained, idle
}

// parts are the names of all patterns.
func (k known) parts() []string {
	var parts []string
	for _, step := range k.Steps {
		parts = append(parts, "step "+step)
	}
	for _, field := range k.places() {
		parts = append(parts, "field "+field)
	}
	return parts
}

// places are the fields, and those of which it is known what the left server says.
func (k known) places() []string {
	return append(slices.Clone(k.Fields), slices.Sorted(maps.Keys(k.Left))...)
}

// matches reports whether it explains a difference, and notes the patterns that do.
func (k known) matches(d difference, used map[string]bool) bool {
	explains := false
	for _, step := range k.Steps {
		if !like(step, d.Step) {
			continue
		}
		for _, field := range k.places() {
			says, pinned := k.Left[field]
			if !like(field, d.Field) || pinned && !like(says, d.Left) {
				continue
			}
			explains, used["step "+step], used["field "+field] = true, true, true
		}
	}
	return explains
}

// fault says what is wrong with it as it stands.
func (k known) fault() string {
	switch {
	case strings.TrimSpace(k.Why) == "":
		return "without a reason"
	case len(k.Steps) == 0 || len(k.places()) == 0:
		return "without steps, or without fields"
	case slices.ContainsFunc(k.places(), func(field string) bool { return strings.Trim(field, "*") == "" }):
		return "with a field that is every field"
	}
	return ""
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
