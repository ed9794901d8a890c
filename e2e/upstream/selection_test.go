package upstream

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	"sigs.k8s.io/yaml"
)

// selection is the set of specs to run: every Conformance spec of the suite except the omitted ones.
type selection struct {
	// LeftOut are Conformance specs that cannot run here, by the missing component.
	LeftOut []leftOut `json:"leftOut"`
	// Also are specs outside Conformance that need no node either, by full name.
	Also []string `json:"also,omitempty"`

	conformance []string // all names, in the order of upstream's list
}

type leftOut struct {
	// Needs names the missing component.
	Needs string `json:"needs"`
	// WithoutNode: they need no node, and are left out for another reason.
	WithoutNode bool `json:"withoutNode,omitempty"`
	// Specs are the full names.
	Specs []string `json:"specs"`
}

// readSelection fails over a name that upstream's list does not have: a list that has rotted must not go unnoticed.
func readSelection(file string) (*selection, error) {
	s := &selection{}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if err := yaml.UnmarshalStrict(data, s); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	list, err := testfiles.Read("test/conformance/testdata/conformance.yaml")
	if err != nil {
		return nil, err
	}
	var all []struct {
		Name string `json:"codename"`
	}
	if err := yaml.Unmarshal(list, &all); err != nil {
		return nil, fmt.Errorf("upstream's list: %w", err)
	}
	known := sets.New[string]()
	for _, spec := range all {
		s.conformance = append(s.conformance, spec.Name)
		known.Insert(spec.Name)
	}
	seen := sets.New[string]()
	for _, group := range s.LeftOut {
		for _, name := range group.Specs {
			if !known.Has(name) {
				return nil, fmt.Errorf("%s: upstream has no Conformance spec %q", file, name)
			}
			if seen.Has(name) {
				return nil, fmt.Errorf("%s: %q is there twice", file, name)
			}
			seen.Insert(name)
		}
	}
	return s, nil
}

// run are the names of the Conformance specs that are not left out.
func (s *selection) run() []string {
	out := sets.New[string]()
	for _, group := range s.LeftOut {
		out.Insert(group.Specs...)
	}
	var names []string
	for _, name := range s.conformance {
		if !out.Has(name) {
			names = append(names, name)
		}
	}
	return names
}

// needNoNode is how many Conformance specs need no node, whether they are run or not.
func (s *selection) needNoNode() int {
	n := len(s.run())
	for _, group := range s.LeftOut {
		if group.WithoutNode {
			n += len(group.Specs)
		}
	}
	return n
}

// focus is the expression by which ginkgo finds these specs. It is anchored and sorted: there are thousands of names.
func focus(names []string) string {
	var patterns []string
	for _, name := range slices.Sorted(slices.Values(names)) {
		patterns = append(patterns, regexp.QuoteMeta(name))
	}
	return "^" + regexp.QuoteMeta(description+" ") + "(?:" + strings.Join(patterns, "|") + ")$"
}

// readNames reads a name from each line.
func readNames(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	names := slices.DeleteFunc(strings.Split(string(data), "\n"), func(name string) bool { return name == "" })
	if len(names) == 0 {
		return nil, fmt.Errorf("%s has no names", file)
	}
	return names, nil
}
