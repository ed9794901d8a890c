package kinds

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"portico.dev/e2e/differential/known"
)

// nothing is the value of a missing field.
const nothing = "(nothing)"

// compare returns the differences in the order of the questions.
func (r recording) compare(theirs recording, order []string) []known.Difference {
	var out []known.Difference
	for _, name := range order {
		mine, other := byManager(r[name]), byManager(theirs[name])
		for _, place := range places(mine, other) {
			a, b := fieldText(mine, place), fieldText(other, place)
			if a != b {
				out = append(out, known.Difference{Question: name, Field: place, Ours: a, Theirs: b})
			}
		}
	}
	return out
}

var managedFields = regexp.MustCompile(`^(.*\bmanagedFields\.)(\d+)(\..*)$`)

// byManager sorts the entries of managedFields by manager. Servers sort them by times with second precision, so the
// order of two consecutive requests varies.
func byManager(fields map[string]string) map[string]string {
	lists := map[string]map[string][]string{} // the contents of each list's entries by index
	for place, text := range fields {
		if m := managedFields.FindStringSubmatch(place); m != nil {
			if lists[m[1]] == nil {
				lists[m[1]] = map[string][]string{}
			}
			lists[m[1]][m[2]] = append(lists[m[1]][m[2]], m[3]+"="+text)
		}
	}
	indices := map[string]string{}
	for list, entries := range lists {
		sorted := slices.Collect(maps.Keys(entries))
		key := func(index string) string {
			said := entries[index]
			slices.Sort(said)
			of := func(field string) string {
				i := slices.IndexFunc(said, func(s string) bool { return strings.HasPrefix(s, field) })
				if i < 0 {
					return ""
				}
				return said[i]
			}
			return of(".manager=") + of(".operation=") + of(".subresource=") + strings.Join(said, ",")
		}
		slices.SortFunc(sorted, func(a, b string) int { return strings.Compare(key(a), key(b)) })
		for i, index := range sorted {
			indices[list+index] = strconv.Itoa(i)
		}
	}
	out := make(map[string]string, len(fields))
	for place, text := range fields {
		if m := managedFields.FindStringSubmatch(place); m != nil {
			place = m[1] + indices[m[1]+m[2]] + m[3]
		}
		out[place] = text
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

func fieldText(fields map[string]string, place string) string {
	if text, ok := fields[place]; ok {
		lines := strings.Split(text, "\n") // errors about types have no defined order
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	return nothing
}
