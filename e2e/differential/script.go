package differential

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed script.yaml
var script []byte

// step is one request. script.yaml says what each field is.
type step struct {
	Name    string            `json:"name"`
	Do      string            `json:"do"`
	As      string            `json:"as"`
	Headers map[string]string `json:"headers"`
	Body    json.RawMessage   `json:"body"`
	Keep    map[string]string `json:"keep"`
	Events  int               `json:"events"`
	Await   int               `json:"await"`
	Head    bool              `json:"head"`
}

func steps() ([]step, error) {
	var all []step
	if err := yaml.UnmarshalStrict(script, &all); err != nil {
		return nil, fmt.Errorf("script.yaml: %w", err)
	}
	seen := map[string]bool{}
	for _, s := range all {
		if s.Name == "" || seen[s.Name] {
			return nil, fmt.Errorf("script.yaml: the name %q is empty or there twice", s.Name)
		}
		seen[s.Name] = true
	}
	return all, nil
}

// request is the method, the path and the body with what was kept put in.
func (s step) request(kept map[string]string) (method, path, body string, err error) {
	var pairs []string
	for name, value := range kept {
		pairs = append(pairs, "{"+name+"}", value)
	}
	fill := strings.NewReplacer(pairs...)
	method, path, _ = strings.Cut(fill.Replace(s.Do), " ")
	if len(s.Body) == 0 {
		return method, path, "", nil
	}
	body = string(s.Body)
	if body[0] == '"' {
		if err := json.Unmarshal(s.Body, &body); err != nil {
			return "", "", "", err
		}
	}
	return method, path, fill.Replace(body), nil
}
