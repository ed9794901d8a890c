package differential

import (
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed script/*.yaml
var scripts embed.FS

// step is one request. script/1-objects.yaml says what each field is.
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

// values are those of one header: a text, or a list of them.
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

// words are a step with what was kept put in.
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
