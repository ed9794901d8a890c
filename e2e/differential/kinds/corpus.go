package kinds

import (
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed testdata/objects.yaml testdata/pods.yaml testdata/devices.yaml
var corpus embed.FS

// subject is an object from which requests are derived. objects.yaml describes the fields.
type subject struct {
	At     string         `json:"at"`
	Kind   string         `json:"kind"`
	Name   string         `json:"name"`
	Names  string         `json:"names"`
	Under  string         `json:"under"`
	Object map[string]any `json:"object"`

	namespace string
	fixture   any
}

func (s subject) String() string { return strings.TrimSpace(s.Kind + " " + s.Name) }

// subjects returns all subjects with complete objects. Each has a separate namespace, so that quotas and limits do
// not affect other subjects. fixtures is the directory of the fixtures in k8s.io/api.
func subjects(fixtures string) ([]subject, error) {
	var all []subject
	for _, file := range []string{"testdata/objects.yaml", "testdata/pods.yaml", "testdata/devices.yaml"} {
		text, err := corpus.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var some []map[string]any
		if err := yaml.UnmarshalStrict(text, &some); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, one := range some {
			namespace := fmt.Sprintf("kinds-%d", len(all))
			filled, err := fill(one, namespace)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			filled.namespace = namespace
			all = append(all, filled)
		}
	}
	for i := range all {
		if all[i].Names == "" {
			all[i].Names = fmt.Sprintf("x%d", i) // unique, because objects of other subjects may still be terminating
		}
		if err := all[i].complete(fixtures); err != nil {
			return nil, fmt.Errorf("%s: %w", all[i], err)
		}
	}
	return all, nil
}

// Sample is a complete valid object.
type Sample struct {
	// At is the path of its collection.
	At     string
	Object map[string]any
}

// Samples returns one object for each collection, for the given namespace.
func Samples(namespace string) ([]Sample, error) {
	text, err := corpus.ReadFile("testdata/objects.yaml")
	if err != nil {
		return nil, err
	}
	var some []map[string]any
	if err := yaml.UnmarshalStrict(text, &some); err != nil {
		return nil, err
	}
	var out []Sample
	seen := map[string]bool{}
	for _, one := range some {
		s, err := fill(one, namespace)
		if err != nil {
			return nil, err
		}
		if seen[s.At] {
			continue // a further variant of the same kind
		}
		seen[s.At] = true
		s.describe(or(s.Names, "sample"))
		out = append(out, Sample{At: s.At, Object: s.Object})
	}
	return out, nil
}

func fill(one map[string]any, namespace string) (s subject, err error) {
	text, err := yaml.Marshal(one)
	if err != nil {
		return s, err
	}
	filled := strings.NewReplacer("{ns}", namespace, "{csr}", signingRequest).Replace(string(text))
	return s, yaml.UnmarshalStrict([]byte(filled), &s)
}

// describe sets the kind, API version and name of the object.
func (s *subject) describe(name string) {
	parts := strings.Split(s.Kind, ".")
	s.Object["kind"] = parts[len(parts)-1]
	if strings.HasPrefix(s.At, "/api/") {
		s.Object["apiVersion"] = "v1"
	} else {
		at := strings.Split(s.At, "/")
		s.Object["apiVersion"] = at[2] + "/" + at[3]
	}
	metadata, _ := s.Object["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["name"] = name
	s.Object["metadata"] = metadata
}

func (s *subject) complete(fixtures string) error {
	s.describe(s.Names)
	text, err := os.ReadFile(filepath.Join(fixtures, s.Kind+".yaml"))
	if os.IsNotExist(err) {
		return nil // k8s.io/api contains no fixtures for APIServices and CustomResourceDefinitions
	}
	if err != nil {
		return err
	}
	var fixture map[string]any
	if err := yaml.Unmarshal(text, &fixture); err != nil {
		return err
	}
	s.fixture = fixture
	return nil
}

// fixtures returns the directory in which k8s.io/api has an object of every kind with every field set.
func fixtures() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	if err != nil {
		return "", fmt.Errorf("find k8s.io/api: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "testdata", "HEAD"), nil
}

// signingRequest is a base64-encoded certificate request in PEM for the name x.
const signingRequest = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlISE1HNENBUUF3RERFS01BZ0dBMVVFQXd3QmVEQlpNQk1HQnlxR1NNNDlBZ0VHQ0NxR1NNNDlBd0VIQTBJQQpCS1VMSVJ2dUlkbjBvWDhseUt6MytLbkkwTGJKZldMbnpSbG1WcExiTDFMSVFMVlhydXNhaGM4dkZmRnlmK1Z0Ck85bnNXZEVUV1g5ODJLb0I5d0d6KzNxZ0FEQUtCZ2dxaGtqT1BRUURBZ05KQURCR0FpRUFvcEVvM3JkelloejMKMVhFZE90UHRKS054ak9TSnY3MnhlV1JFR0FmZjlmNENJUURXZnl3aUY2TGVTM0dkc2x2QnR2T0prRGRDSURIcgpTN0FxM1BYZjRkVDdjUT09Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo="
