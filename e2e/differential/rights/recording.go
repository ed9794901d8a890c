package rights

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
)

// recording is what a server answered.
type recording struct {
	// Version is what the server calls itself.
	Version string
	// Resources are what its discovery listed; the questions are made of them.
	Resources []resource
	// Personas are the answers of the grid by the names of personas.
	Personas map[string]answers
	// Scenarios are the answers of scenarios by the names of their steps.
	Scenarios answers
}

// packed is a recording as it is written: most personas are told the same.
type packed struct {
	Version   string           `json:"version"`
	Resources []resource       `json:"resources"`
	Questions []packedQuestion `json:"questions"`
	// Personas have for each question the number of the answer, or -1 if they are not asked.
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
	p := packed{Version: r.Version, Resources: r.Resources, Personas: map[string][]int{}, Scenarios: r.Scenarios}
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
	var out bytes.Buffer
	to, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := to.Write(text); err != nil {
		return err
	}
	if err := to.Close(); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

func readRecording(file string) (r recording, err error) {
	from, err := os.Open(file)
	if err != nil {
		return r, err
	}
	defer from.Close()
	text, err := gzip.NewReader(from)
	if err != nil {
		return r, fmt.Errorf("%s: %w", file, err)
	}
	var p packed
	if err := json.NewDecoder(io.LimitReader(text, 256<<20)).Decode(&p); err != nil {
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

// only drops the part that the other was not asked.
func (r *recording) only(other recording) {
	if other.Personas == nil {
		r.Personas = nil
	}
	if other.Scenarios == nil {
		r.Scenarios = nil
	}
}
