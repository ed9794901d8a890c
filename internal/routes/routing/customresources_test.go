package routing

import (
	"strings"
	"testing"
)

const customHead = "metadata: {name: v1.example.com}\nspec:\n  backends: [{name: server}, {name: custom, customResources: {}}]\n"

func TestRulesSplittingStoredObjectsAreInvalid(t *testing.T) {
	const one = "each object is stored in one place"
	for text, want := range map[string]string{
		"metadata: {name: v1.example.com}\nspec: {backends: [{name: a, customResources: {}, service: {namespace: n, name: n}}]}":  "spec.backends[0].service: Forbidden: custom resources are served by the front door itself",
		"metadata: {name: v1.example.com}\nspec: {backends: [{name: a, customResources: {}, caBundle: YQ==}]}":                    "spec.backends[0].caBundle: Forbidden",
		"metadata: {name: v1.example.com}\nspec: {backends: [{name: a, customResources: {}}, {name: b, customResources: {}}]}":    "spec.backends[1].customResources: Forbidden: another backend",
		"metadata: {name: v1.example.com}\nspec: {backends: [{name: a, customResources: {}}, {name: b, version: v2}]}":            "spec.backends[1].version: Forbidden: another version",
		"metadata: {name: v1beta1.external.metrics.k8s.io}\nspec: {backends: [{name: a, customResources: {}}]}":                   "spec.backends: Forbidden: metrics are no custom resources",
		customHead + "  rules: [{name: r, backendRefs: [{name: custom}, {name: server}]}]":                                        "spec.rules[0].backendRefs: Forbidden: more than one backend",
		customHead + "  rules: [{name: r, backendRefs: [{name: custom}], fallback: server}]":                                      "spec.rules[0].fallback: Forbidden: is not possible",
		customHead + "  rules: [{name: r, backendRefs: [{name: server}], sharedReads: {maxAge: 1s}}]":                             "spec.rules[0].sharedReads: Forbidden: is not possible",
		customHead + "  rules: [{name: r, backendRefs: [{name: server}], mirror: {backend: custom}}]":                             "spec.rules[0].mirror: Forbidden: is not possible",
		customHead + "  rules: [{name: r, backendRefs: [{name: server}, {name: custom}], rollback: {errorPercent: 5}}]":           "spec.rules[0].rollback: Forbidden: is not possible",
		customHead + "  rules: [{name: r, matches: [{access: Read}], backendRefs: [{name: custom}]}]":                             "spec.rules[0].matches[0].access: Forbidden: rules select by resources",
		customHead + "  rules: [{name: r, matches: [{names: [a]}], backendRefs: [{name: custom}]}]":                               "spec.rules[0].matches[0].names: Forbidden",
		customHead + "  rules: [{name: r, matches: [{headers: [{name: X, value: y}]}], backendRefs: [{name: custom}]}]":           "spec.rules[0].matches[0].headers: Forbidden",
		customHead + "  rules: [{name: r, matches: [{namespaceSelector: {matchLabels: {a: b}}}], backendRefs: [{name: custom}]}]": "spec.rules[0].matches[0].namespaceSelector: Forbidden",
		customHead + "  rules: [{name: r, matches: [{resources: [widgets/status]}], backendRefs: [{name: custom}]}]":              "spec.rules[0].matches[0].resources: Forbidden",
	} {
		errs := Validate(decode(t, text)).ToAggregate()
		if errs == nil || !strings.Contains(errs.Error(), want) {
			t.Errorf("Validate of\n%s\n= %v, want an error that contains %q", text, errs, want)
		}
		if strings.Contains(want, "is not possible") && !strings.Contains(errs.Error(), one) {
			t.Errorf("Validate = %v, want an error that gives the reason %q", errs, one)
		}
	}
	for _, text := range []string{
		customHead,
		customHead + "  rules: [{name: r, readOnly: true, matches: [{resources: [widgets], namespaces: ['team-*']}], backendRefs: [{name: custom}]}]",
	} {
		if errs := Validate(decode(t, text)); len(errs) > 0 {
			t.Errorf("Validate of\n%s\n= %v, want no error", text, errs)
		}
	}
}

func TestChooseReturnsBackendsStoringObjects(t *testing.T) {
	r := compile(t, customHead+`  rules:
  - {name: ponds, matches: [{resources: [ponds]}], backendRefs: [{name: custom}]}
  - {name: frozen, readOnly: true, matches: [{resources: [widgets], namespaces: [b]}], backendRefs: [{name: server}]}
  - {name: moved, matches: [{resources: [widgets], namespaces: [a]}], backendRefs: [{name: custom}]}
`)
	if r.CustomResources() != 1 {
		t.Errorf("CustomResources() = %d, want 1", r.CustomResources())
	}
	for _, c := range []struct{ method, path, want string }{
		{"GET", "/apis/example.com/v1/ponds", "custom(ponds)"},
		{"GET", "/apis/example.com/v1/widgets", "server(frozen) custom(moved)"},
		{"GET", "/apis/example.com/v1/namespaces/a/widgets", "custom(moved)"},
		{"PUT", "/apis/example.com/v1/namespaces/a/widgets/x/status", "custom(moved)"},
		{"POST", "/apis/example.com/v1/namespaces/a/widgets", "custom(moved)"},
		{"DELETE", "/apis/example.com/v1/namespaces/b/widgets", "server(frozen)"},
		{"GET", "/apis/example.com/v1/namespaces/c/widgets", "server()"},
		{"GET", "/apis/example.com/v1/namespaces/a/others", "server()"},
	} {
		if got := chosen(r, ask(t, c.method, c.path, "alice", nil)); got != c.want {
			t.Errorf("backends of %s %s = %s, want %s", c.method, c.path, got, c.want)
		}
	}
	if choices := r.Choose(ask(t, "PUT", "/apis/example.com/v1/namespaces/b/widgets/x", "alice", nil), nil); !choices[0].ReadOnly {
		t.Error("PUT in a namespace that is copied: ReadOnly = false, want true")
	}
}
