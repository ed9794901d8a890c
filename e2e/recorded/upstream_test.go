package recorded

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// The directory of Kubernetes' specs, a separate module.
const upstream = "../upstream"

type result struct {
	Suite       string `json:"suite"`
	Libraries   string `json:"libraries"`
	Server      string `json:"server"`
	Date        string `json:"date"`
	Conformance int    `json:"conformance"`
	NeedNoNode  int    `json:"needNoNode"`
	Passed      int    `json:"passed"`
	Failed      int    `json:"failed"`
	AlsoPassed  int    `json:"alsoPassed"`
	AlsoFailed  int    `json:"alsoFailed"`
	Specs       []spec `json:"specs"`
}

type spec struct {
	Name    string `json:"name"`
	Outcome string `json:"outcome"`
	Message string `json:"message"`
}

type selection struct {
	LeftOut []struct {
		Needs       string   `json:"needs"`
		WithoutNode bool     `json:"withoutNode"`
		Specs       []string `json:"specs"`
	} `json:"leftOut"`
	Also []string `json:"also"`
}

// explanations are the reasons why a spec fails or skips itself, by its full name.
type explanations map[string]string

func read(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(upstream, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		t.Fatalf("decoding %s failed: %v, want no error", name, err)
	}
}

func TestUpstreamResult(t *testing.T) {
	var r result
	var s selection
	why := explanations{}
	read(t, "result.yaml", &r)
	read(t, "selection.yaml", &s)
	read(t, "explanations.yaml", &why)

	for field, value := range map[string]string{"suite": r.Suite, "libraries": r.Libraries, "server": r.Server} {
		if value == "" {
			t.Errorf("result.yaml has no %s, want one", field)
		}
	}
	if _, err := time.Parse(time.DateOnly, r.Date); err != nil {
		t.Errorf("date of the run: %v, want a valid date", err)
	}
	count(t, r, s)
	outcomes := map[string]string{}
	for _, spec := range r.Specs {
		if outcomes[spec.Name] != "" {
			t.Errorf("spec %s is listed twice, want once", spec.Name)
		}
		outcomes[spec.Name] = spec.Outcome
		if spec.Outcome != "passed" && strings.TrimSpace(why[spec.Name]) == "" {
			t.Errorf("%s spec without an explanation, want one in explanations.yaml: %s", spec.Outcome, spec.Name)
		}
	}
	for name := range why {
		if outcomes[name] == "" || outcomes[name] == "passed" {
			t.Errorf("explanation of a spec that did not fail: %s, want none", name)
		}
	}
}

// count compares the totals with the listed specs.
func count(t *testing.T, r result, s selection) {
	leftOut, withoutNode := map[string]bool{}, 0
	for _, group := range s.LeftOut {
		if group.Needs == "" {
			t.Error("a group of omitted specs has no reason, want one")
		}
		for _, name := range group.Specs {
			if leftOut[name] {
				t.Errorf("spec %s is omitted twice, want once", name)
			}
			leftOut[name] = true
			if group.WithoutNode {
				withoutNode++
			}
		}
	}
	got := map[string]int{}
	run := 0
	for _, spec := range r.Specs {
		if leftOut[spec.Name] {
			t.Errorf("spec %s is omitted and was run, want one of both", spec.Name)
		}
		if strings.Contains(spec.Name, "[Conformance]") {
			run++
			got[spec.Outcome]++
		} else {
			got["also "+spec.Outcome]++
		}
	}
	for outcome, want := range map[string]int{
		"passed": r.Passed, "failed": r.Failed, "also passed": r.AlsoPassed, "also failed": r.AlsoFailed,
	} {
		if got[outcome] != want {
			t.Errorf("%s specs: total = %d, want the %d listed ones", outcome, want, got[outcome])
		}
	}
	if want := r.Conformance - len(leftOut); run != want {
		t.Errorf("%d Conformance specs were run, want %d of the selection", run, want)
	}
	if want := run + withoutNode; r.NeedNoNode != want {
		t.Errorf("%d Conformance specs without a node, want %d of the selection", r.NeedNoNode, want)
	}
}
