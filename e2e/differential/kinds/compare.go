package kinds

import (
	"maps"
	"slices"
	"strings"

	"portico.dev/e2e/differential/known"
)

// nothing is what a field says that is not there.
const nothing = "(nothing)"

// compare returns the differences in the order of the questions.
func (r recording) compare(theirs recording, order []string) []known.Difference {
	var out []known.Difference
	for _, name := range order {
		for _, place := range places(r[name], theirs[name]) {
			a, b := said(r[name], place), said(theirs[name], place)
			if a != b {
				out = append(out, known.Difference{Question: name, Field: place, Ours: a, Theirs: b})
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
