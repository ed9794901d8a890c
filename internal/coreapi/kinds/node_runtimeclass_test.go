package kinds_test

import (
	"testing"

	nodev1 "k8s.io/api/node/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestRuntimeClasses(t *testing.T) {
	kindtest.Refuses(t, []kindtest.Create{
		{"a runtime without a handler", kindtest.Decode[nodev1.RuntimeClass](t, "metadata: {name: a}"), []string{"handler: Required value"}},
		{"a handler that is no label", kindtest.Decode[nodev1.RuntimeClass](t, "metadata: {name: a}\nhandler: a.b"), []string{`handler: Invalid value: "a.b": must not contain dots`}},
		{"one toleration twice", kindtest.Decode[nodev1.RuntimeClass](t, "metadata: {name: a}\nhandler: a\nscheduling: {tolerations: [{key: a, operator: Exists}, {key: a, operator: Exists}]}"),
			[]string{"scheduling.tolerations[1]: Duplicate value: ..."}},
	})
	kindtest.Changes(t, kindtest.Decode[nodev1.RuntimeClass](t, "metadata: {name: a}\nhandler: a"), map[string]kindtest.Change[*nodev1.RuntimeClass]{
		"another handler": {func(c *nodev1.RuntimeClass) { c.Handler = "b" }, []string{`handler: Invalid value: "b": field is immutable`}},
	})
}
