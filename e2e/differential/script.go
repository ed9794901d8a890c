package differential

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"portico.dev/e2e/packed"
	"sigs.k8s.io/yaml"
)

//go:embed script/*.yaml
var scripts embed.FS

// step is one request. script/1-objects.yaml describes the fields.
type step struct {
	Name    string            `json:"name"`
	Do      string            `json:"do"`
	As      string            `json:"as"`
	Raw     bool              `json:"raw"`
	Headers map[string]values `json:"headers"`
	Body    json.RawMessage   `json:"body"`
	Keep    map[string]string `json:"keep"`
	Events  int               `json:"events"`
	Await   int               `json:"await"`
	Until   map[string]string `json:"until"`
	While   map[string]string `json:"while"`
	Head    bool              `json:"head"`
	Breaks  bool              `json:"breaks"`
}

// values are the values of one header: a string, or a list of strings.
type values []string

// UnmarshalJSON implements json.Unmarshaler.
func (v *values) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		return json.Unmarshal(data, (*[]string)(v))
	}
	*v = values{""}
	return json.Unmarshal(data, &(*v)[0])
}

func steps() ([]step, error) {
	files, err := scripts.ReadDir("script")
	if err != nil {
		return nil, err
	}
	var all []step
	seen := map[string]bool{}
	for _, file := range files {
		data, err := scripts.ReadFile("script/" + file.Name())
		if err != nil {
			return nil, err
		}
		var some []step
		if err := yaml.UnmarshalStrict(data, &some); err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name(), err)
		}
		for _, s := range some {
			if s.Name == "" || seen[s.Name] {
				return nil, fmt.Errorf("%s: the name %q is empty or there twice", file.Name(), s.Name)
			}
			seen[s.Name] = true
		}
		all = append(all, some...)
	}
	return all, nil
}

// words is a step with the kept values substituted.
type words struct {
	method, target, body string
	header               http.Header
}

func (s step) words(kept map[string]string) (w words, err error) {
	var pairs []string
	for name, value := range kept {
		pairs = append(pairs, "{"+name+"}", value)
	}
	fill := strings.NewReplacer(pairs...)
	w.method, w.target, _ = strings.Cut(fill.Replace(s.Do), " ")
	w.header = http.Header{"Accept": {"application/json"}}
	if len(s.Body) > 0 {
		w.header.Set("Content-Type", "application/json")
		w.body = string(s.Body)
		if w.body[0] == '"' {
			if err := json.Unmarshal(s.Body, &w.body); err != nil {
				return w, err
			}
		}
		w.body = fill.Replace(w.body)
	}
	for name, all := range s.Headers {
		w.header.Del(name)
		for _, value := range all {
			w.header.Add(name, fill.Replace(value))
		}
	}
	return w, nil
}

// recording contains the answers of a server. Its file contains a line of JSON for the server and one for each step.
type recording struct {
	Server  recorded
	Answers []recordedAnswer
}

// recorded describes the server of a recording.
type recorded struct {
	// Version is its gitVersion.
	Version string `json:"server"`
}

type recordedAnswer struct {
	Step string            `json:"step"`
	Says map[string]string `json:"says"`
}

func (r recording) write(file string) error {
	var out bytes.Buffer
	lines := json.NewEncoder(&out)
	lines.SetEscapeHTML(false)
	if err := lines.Encode(r.Server); err != nil {
		return err
	}
	for _, a := range r.Answers {
		if err := lines.Encode(a); err != nil {
			return err
		}
	}
	return packed.Write(file, out.Bytes())
}

func readRecording(file string) (r recording, err error) {
	text, err := packed.Read(file)
	if err != nil {
		return r, err
	}
	lines := json.NewDecoder(bytes.NewReader(text))
	lines.DisallowUnknownFields()
	if err := lines.Decode(&r.Server); err != nil {
		return r, fmt.Errorf("%s: %w", file, err)
	}
	for lines.More() {
		var a recordedAnswer
		if err := lines.Decode(&a); err != nil {
			return r, fmt.Errorf("%s: after %d answers: %w", file, len(r.Answers), err)
		}
		r.Answers = append(r.Answers, a)
	}
	return r, nil
}
