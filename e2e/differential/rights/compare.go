package rights

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"portico.dev/e2e/differential/known"
)

// The fields of differences. A right that one of the two gives and the other refuses has a field that says which: a list of
// known differences in what is refused here must never hide something that is allowed here.
const (
	allowedHere = "allowed here"
	refusedHere = "refused here"
	unasked     = "unasked"
)

// refused reports whether the answer is that the persona may not.
func (a answer) refused() bool {
	return a.Code == http.StatusForbidden || a.Code == http.StatusUnauthorized
}

func (a answer) String() string {
	text := strconv.Itoa(a.Code)
	if a.Reason != "" || a.Message != "" {
		text += " " + a.Reason + ": " + a.Message
	}
	return text
}

// compare returns the differences of one answer.
func (a answer) compare(name string, theirs answer) []known.Difference {
	var out []known.Difference
	add := func(field, ours, theirs string) {
		out = append(out, known.Difference{Question: name, Field: field, Ours: ours, Theirs: theirs})
	}
	switch {
	case a.refused() && !theirs.refused():
		add(refusedHere, a.String(), theirs.String())
		return out
	case !a.refused() && theirs.refused():
		add(allowedHere, a.String(), theirs.String())
		return out
	}
	if a.Code != theirs.Code {
		add("code", a.String(), theirs.String())
		return out
	}
	if a.Reason != theirs.Reason {
		add("reason", a.Reason, theirs.Reason)
	}
	if a.Message != theirs.Message {
		add("message", a.Message, theirs.Message)
	}
	for _, line := range a.Lines {
		if !slices.Contains(theirs.Lines, line) {
			add("only here: "+line, "there", "(nothing)")
		}
	}
	for _, line := range theirs.Lines {
		if !slices.Contains(a.Lines, line) {
			add("not here: "+line, "(nothing)", "there")
		}
	}
	return out
}

// compare returns the differences of all answers, in the order of the names.
func (r recording) compare(theirs recording) []known.Difference {
	var out []known.Difference
	both := func(prefix string, ours, theirs answers) {
		for _, name := range names(ours, theirs) {
			a, here := ours[name]
			b, there := theirs[name]
			if here && there {
				out = append(out, a.compare(prefix+name, b)...)
				continue
			}
			out = append(out, known.Difference{Question: prefix + name, Field: unasked, Ours: fmt.Sprint(here), Theirs: fmt.Sprint(there)})
		}
	}
	for _, who := range names(r.Personas, theirs.Personas) {
		both(who+": ", r.Personas[who], theirs.Personas[who])
	}
	both("", r.Scenarios, theirs.Scenarios)
	return out
}

func names[V any](a, b map[string]V) []string {
	var out []string
	for name := range a {
		out = append(out, name)
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
