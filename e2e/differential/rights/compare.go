package rights

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"portico.dev/e2e/differential/known"
	"portico.dev/e2e/packed"
)

// The fields of differences. If only one of the servers allows a request, the field contains the direction, so that a
// list of known differences about refused requests cannot hide requests that are allowed only here.
const (
	allowedHere = "allowed here"
	refusedHere = "refused here"
	unasked     = "unasked"
)

// refused reports whether the answer is 401 or 403.
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

// recording contains the answers of a server.
type recording struct {
	// Version is the version reported by the server.
	Version string
	// Resources lists the resources in its discovery, from which the questions are derived.
	Resources []resource
	// Personas contains the answers of the grid by the names of personas.
	Personas map[string]answers
	// Scenarios contains the answers of scenarios by the names of their steps.
	Scenarios answers
}

// compact is the file format of a recording. It stores equal answers of different personas once.
type compact struct {
	Version   string           `json:"version"`
	Resources []resource       `json:"resources"`
	Questions []packedQuestion `json:"questions"`
	// Personas contains the index of the answer for each question, or -1 if the persona does not send it.
	Personas  map[string][]int `json:"personas"`
	Scenarios answers          `json:"scenarios"`
}

type packedQuestion struct {
	Name    string   `json:"q"`
	Answers []answer `json:"a"`
}

func (r recording) write(file string) error {
	names := map[string]bool{}
	for _, said := range r.Personas {
		for name := range said {
			names[name] = true
		}
	}
	p := compact{Version: r.Version, Resources: r.Resources, Personas: map[string][]int{}, Scenarios: r.Scenarios}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		q := packedQuestion{Name: name}
		numbers := map[string]int{}
		for _, who := range slices.Sorted(maps.Keys(r.Personas)) {
			a, asked := r.Personas[who][name]
			if !asked {
				p.Personas[who] = append(p.Personas[who], -1)
				continue
			}
			text, err := json.Marshal(a)
			if err != nil {
				return err
			}
			key := string(text)
			number, ok := numbers[key]
			if !ok {
				number = len(q.Answers)
				numbers[key] = number
				q.Answers = append(q.Answers, a)
			}
			p.Personas[who] = append(p.Personas[who], number)
		}
		p.Questions = append(p.Questions, q)
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return packed.Write(file, text)
}

func readRecording(file string) (r recording, err error) {
	text, err := packed.Read(file)
	if err != nil {
		return r, err
	}
	var p compact
	if err := json.Unmarshal(text, &p); err != nil {
		return r, fmt.Errorf("%s: %w", file, err)
	}
	r = recording{Version: p.Version, Resources: p.Resources, Scenarios: p.Scenarios, Personas: map[string]answers{}}
	for who, numbers := range p.Personas {
		said := answers{}
		for i, number := range numbers {
			if number >= 0 {
				said[p.Questions[i].Name] = p.Questions[i].Answers[number]
			}
		}
		r.Personas[who] = said
	}
	return r, nil
}

// only drops the parts that the other recording does not have.
func (r *recording) only(other recording) {
	if other.Personas == nil {
		r.Personas = nil
	}
	if other.Scenarios == nil {
		r.Scenarios = nil
	}
}
