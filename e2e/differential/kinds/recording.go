package kinds

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"portico.dev/e2e/packed"
)

// recording maps the names of questions to the fields of the responses by place.
type recording map[string]map[string]string

// change is the difference of a response from the previous similar one. Hundreds of responses about one object are
// almost equal.
type change struct {
	Name string            `json:"n"`
	Set  map[string]string `json:"s,omitempty"`
	Gone []string          `json:"g,omitempty"`
}

// alike returns a key that is equal for similar responses.
func alike(name string, fields map[string]string) string {
	subject, rest, _ := strings.Cut(name, ": ")
	verb, _, _ := strings.Cut(rest, " ")
	return fmt.Sprint(subject, verb, fields["code"])
}

// lacking returns the scripts with at least one question without a response. They must run completely, because a
// response depends on the previous questions.
func (r recording) lacking(all []script) []script {
	return slices.DeleteFunc(slices.Clone(all), func(s script) bool {
		return !slices.ContainsFunc(s.questions, func(q question) bool { return r[q.Name] == nil })
	})
}

func (r recording) write(file string, order []string) error {
	before := map[string]map[string]string{}
	var out []change
	for _, name := range order {
		fields := r[name]
		kind := alike(name, fields)
		c := change{Name: name, Set: map[string]string{}}
		for place, text := range fields {
			if old, ok := before[kind][place]; !ok || old != text {
				c.Set[place] = text
			}
		}
		for place := range before[kind] {
			if _, ok := fields[place]; !ok {
				c.Gone = append(c.Gone, place)
			}
		}
		c.Set["code"] = fields["code"]
		before[kind] = fields
		out = append(out, c)
	}
	text, err := json.Marshal(out)
	if err != nil {
		return err
	}
	return packed.Write(file, text)
}

func read(file string) (recording, error) {
	text, err := packed.Read(file)
	if err != nil {
		return nil, err
	}
	var all []change
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	r := recording{}
	before := map[string]map[string]string{}
	for _, c := range all {
		kind := alike(c.Name, c.Set)
		fields := maps.Clone(before[kind])
		if fields == nil {
			fields = map[string]string{}
		}
		maps.Copy(fields, c.Set)
		for _, place := range c.Gone {
			delete(fields, place)
		}
		r[c.Name], before[kind] = fields, fields
	}
	return r, nil
}
