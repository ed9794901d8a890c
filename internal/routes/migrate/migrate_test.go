package migrate

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routes/v1alpha1"
)

func migration(namespaced bool) *Migration {
	return &Migration{
		config:   Config{Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}},
		resource: metav1.APIResource{Name: "widgets", Namespaced: namespaced},
	}
}

func spec() *v1alpha1.APIRouteSpec {
	return &v1alpha1.APIRouteSpec{Backends: []v1alpha1.APIRouteBackend{{Name: "server"}, {Name: "custom", CustomResources: &v1alpha1.CustomResources{}}}}
}

func rules(s *v1alpha1.APIRouteSpec) string {
	var out []string
	for _, r := range s.Rules {
		text := r.Name + " -> " + r.BackendRefs[0].Name
		for _, m := range r.Matches {
			text += fmt.Sprintf(" %v%v", m.Resources, m.Namespaces)
		}
		if r.ReadOnly {
			text += " read-only"
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// A namespace is frozen, moved and moved back. Other rules stay, and the spec is valid after each step.
func TestMigrationStepsProduceValidRules(t *testing.T) {
	m, s := migration(true), spec()
	s.Rules = []v1alpha1.APIRouteRule{{Name: "ponds", Matches: []v1alpha1.APIRouteMatch{{Resources: []string{"ponds"}}}, BackendRefs: []v1alpha1.BackendRef{{Name: "custom"}}}}
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() { m.freeze(s, "a", "server") }, "migrate-widgets-a -> server [widgets][a] read-only; ponds -> custom [ponds][]"},
		{func() { m.unfreeze(s, "a"); m.assign(s, "a", "custom") }, "widgets-in-custom -> custom [widgets][a]; ponds -> custom [ponds][]"},
		{func() { m.assign(s, "b", "custom") }, "widgets-in-custom -> custom [widgets][a b]; ponds -> custom [ponds][]"},
		{func() { m.freeze(s, "b", "custom") }, "migrate-widgets-b -> custom [widgets][b] read-only; widgets-in-custom -> custom [widgets][a b]; ponds -> custom [ponds][]"},
		{func() { m.unfreeze(s, "b"); m.assign(s, "b", "server") }, "widgets-in-custom -> custom [widgets][a]; ponds -> custom [ponds][]"},
		{func() { m.assign(s, "a", "server") }, "ponds -> custom [ponds][]"},
	} {
		step.do()
		if got := rules(s); got != step.want {
			t.Fatalf("rules after the step = %s\nwant %s", got, step.want)
		}
		if errs := routing.Validate(&v1alpha1.APIRoute{ObjectMeta: metav1.ObjectMeta{Name: "v1.example.com"}, Spec: *s}); len(errs) > 0 {
			t.Fatalf("Validate of the rules %s = %v, want no error", step.want, errs)
		}
	}
	// A rule for all namespaces already selects the backend. A rule for one namespace is needed only for another backend.
	s.Rules = []v1alpha1.APIRouteRule{{Name: "all", Matches: []v1alpha1.APIRouteMatch{{Resources: []string{"widgets"}}}, BackendRefs: []v1alpha1.BackendRef{{Name: "custom"}}}}
	m.assign(s, "a", "custom")
	if got, want := rules(s), "all -> custom [widgets][]"; got != want {
		t.Errorf("rules after the namespace moved to the backend of all = %s, want %s", got, want)
	}
	m.assign(s, "a", "server")
	if got, want := rules(s), "widgets-in-server -> server [widgets][a]; all -> custom [widgets][]"; got != want {
		t.Errorf("rules after the namespace moved to another backend = %s, want %s", got, want)
	}
	m, s = migration(false), spec()
	m.freeze(s, "", "server")
	m.unfreeze(s, "")
	m.assign(s, "", "custom")
	if got, want := rules(s), "widgets-in-custom -> custom [widgets][]"; got != want {
		t.Errorf("rules of objects without a namespace = %s, want %s", got, want)
	}
	m.assign(s, "", "server")
	if got := rules(s); got != "" {
		t.Errorf("rules after the way back = %s, want none", got)
	}
}

func TestRuleHoldsManyNamespaces(t *testing.T) {
	m, s := migration(true), spec()
	for i := range 3*namespacesOfMatch + 1 {
		m.assign(s, fmt.Sprintf("n-%03d", i), "custom")
	}
	if errs := routing.Validate(&v1alpha1.APIRoute{ObjectMeta: metav1.ObjectMeta{Name: "v1.example.com"}, Spec: *s}); len(errs) > 0 || len(s.Rules) != 1 || len(s.Rules[0].Matches) != 4 {
		t.Errorf("rules of many namespaces = %s, validation errors %v, want one valid rule with 4 matches", rules(s), errs)
	}
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestDifferenceNamesFirstDifferingField(t *testing.T) {
	m := migration(true)
	m.config.Ignore = []string{"spec.mode"}
	const o = `{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"a","uid":"1","resourceVersion":"5","labels":{"x":"y"},"ownerReferences":[{"uid":"1","kind":"Widget","name":"b","apiVersion":"example.com/v1"}]},"spec":{"size":3}}`
	for text, want := range map[string]string{
		`{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"a","uid":"2","resourceVersion":"9","generation":1,"labels":{"x":"y"},"annotations":{"routing.portico.dev/migrated-from-uid":"1"},"ownerReferences":[{"uid":"2","kind":"Widget","name":"b","apiVersion":"example.com/v1"}]},"spec":{"size":3,"mode":"default"},"status":{}}`: "",
		`{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"a","uid":"2","labels":{"x":"z"},"ownerReferences":[{"uid":"2","kind":"Widget","name":"b","apiVersion":"example.com/v1"}]},"spec":{"size":3}}`:                                                                                                                               "metadata.labels.x is z, and was y",
		`{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"a","uid":"2","labels":{"x":"y"},"ownerReferences":[{"uid":"2","kind":"Widget","name":"b","apiVersion":"example.com/v1"}]},"spec":{}}`:                                                                                                                                       "spec.size is not set, and was 3",
	} {
		if got := m.difference(object(t, o), object(t, text), map[string]string{"2": "1"}); got != want {
			t.Errorf("difference to %s = %q, want %q", text, got, want)
		}
	}
}

func TestCopyOmitsServerSetFields(t *testing.T) {
	o := object(t, `{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"a","namespace":"n","uid":"1","resourceVersion":"5","generation":3,"creationTimestamp":"2026-11-20T10:00:00Z","finalizers":["f"],"managedFields":[{"manager":"kubectl"}]},"spec":{"size":3}}`)
	made, err := template(o).MarshalJSON()
	if want := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"annotations":{"routing.portico.dev/migrated-from-uid":"1"},"finalizers":["f"],"managedFields":[{"manager":"kubectl"}],"name":"a","namespace":"n"},"spec":{"size":3}}` + "\n"; err != nil || string(made) != want {
		t.Errorf("template = %s, %v\nwant %s", made, err, want)
	}
}

// Namespaces with a common prefix get separate rules.
func TestA51LongNamespaceNamesHaveSeparateRules(t *testing.T) {
	m, s := migration(true), spec()
	m.config.Resource.Resource = "verylongwidgets"
	begin := strings.Repeat("n", 46) + "-" // with this prefix the name of the truncated rule ended with a hyphen
	one, two := begin+"one", begin+"two"
	m.freeze(s, one, "server")
	m.freeze(s, two, "server")
	if errs := routing.Validate(&v1alpha1.APIRoute{ObjectMeta: metav1.ObjectMeta{Name: "v1.example.com"}, Spec: *s}); len(errs) > 0 {
		t.Errorf("Validate = %v, want none: %s", errs, rules(s))
	}
	m.unfreeze(s, one)
	if got, want := rules(s), m.frozenRule(two)+" -> server [verylongwidgets]["+two+"] read-only"; got != want {
		t.Errorf("rules after one namespace moved = %s, want %s", got, want)
	}

	// A rule of a release with truncated names is found by its match.
	s.Rules = nil
	old := v1alpha1.APIRouteRule{Name: cutOff(m.fullFrozenRule(two)), Matches: m.match(two), ReadOnly: true, BackendRefs: []v1alpha1.BackendRef{{Name: "server"}}}
	s.Rules = append(s.Rules, old)
	if m.unfreeze(s, one); len(s.Rules) != 1 {
		t.Errorf("rules after unfreezing another namespace = %s, want one rule", rules(s))
	}
	if m.unfreeze(s, two); len(s.Rules) != 0 {
		t.Errorf("rules after unfreezing the namespace = %s, want none", rules(s))
	}
}

// Backends with a common prefix also get separate rules.
func TestA51LongBackendNamesHaveSeparateRules(t *testing.T) {
	m, s := migration(true), spec()
	begin := strings.Repeat("b", 60)
	s.Backends = append(s.Backends, v1alpha1.APIRouteBackend{Name: begin + "1"}, v1alpha1.APIRouteBackend{Name: begin + "2"})
	m.assign(s, "a", begin+"1")
	m.assign(s, "b", begin+"2")
	want := m.movedRule(begin+"2") + " -> " + begin + "2 [widgets][b]; " + m.movedRule(begin+"1") + " -> " + begin + "1 [widgets][a]"
	if got := rules(s); got != want || m.movedRule(begin+"1") == m.movedRule(begin+"2") {
		t.Errorf("rules of two backends = %s\nwant %s", got, want)
	}
	if errs := routing.Validate(&v1alpha1.APIRoute{ObjectMeta: metav1.ObjectMeta{Name: "v1.example.com"}, Spec: *s}); len(errs) > 0 {
		t.Errorf("Validate = %v, want none", errs)
	}
	// The rule of a release with truncated names stays in use.
	s.Rules = s.Rules[1:]
	s.Rules[0].Name = cutOff(m.fullMovedRule(begin + "1"))
	m.assign(s, "c", begin+"1")
	if got, want := rules(s), cutOff(m.fullMovedRule(begin+"1"))+" -> "+begin+"1 [widgets][a c]"; got != want {
		t.Errorf("rules with a truncated name = %s, want %s", got, want)
	}
}
