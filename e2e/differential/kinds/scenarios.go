package kinds

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed testdata/scenarios.yaml
var scenarioFile []byte

// scenario is a sequence of requests. scenarios.yaml describes the fields.
type scenario struct {
	Name  string `json:"name"`
	Steps []step `json:"steps"`
}

type step struct {
	Do     string            `json:"do"`
	Type   string            `json:"type"`
	Table  bool              `json:"table"`
	As     string            `json:"as"`
	Groups []string          `json:"groups"`
	Body   json.RawMessage   `json:"body"`
	Await  map[string]string `json:"await"`
}

func scenarios() ([]script, error) {
	var all []scenario
	if err := yaml.UnmarshalStrict(scenarioFile, &all); err != nil {
		return nil, fmt.Errorf("scenarios.yaml: %w", err)
	}
	var out []script
	for i, s := range all {
		namespace := fmt.Sprintf("scenario-%d", i)
		one := script{namespace: namespace, alone: true}
		for j, step := range s.Steps {
			fill := strings.NewReplacer("{ns}", namespace, "{csr}", signingRequest)
			method, path, _ := strings.Cut(fill.Replace(step.Do), " ")
			q := question{Name: fmt.Sprintf("%s: %d, %s", s.Name, j, step.Do), Method: method, Path: path, Type: step.Type, As: step.As, Groups: step.Groups, Await: step.Await}
			if step.Table {
				q.Accept = "application/json;as=Table;g=meta.k8s.io;v=v1"
			}
			if len(step.Body) > 0 {
				q.Body = json.RawMessage(fill.Replace(string(step.Body)))
			}
			one.questions = append(one.questions, q)
		}
		out = append(out, one)
	}
	return out, nil
}
