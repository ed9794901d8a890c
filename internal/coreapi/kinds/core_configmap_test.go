package kinds_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestConfigMaps(t *testing.T) {
	big := kindtest.Decode[corev1.ConfigMap](t, "metadata: {name: a, namespace: ns}")
	big.Data = map[string]string{"k": strings.Repeat("x", corev1.MaxSecretSize)}
	big.BinaryData = map[string][]byte{"b": {0}}
	kindtest.Refuses(t, []kindtest.Create{
		{"a key that is no file name", kindtest.Decode[corev1.ConfigMap](t, "metadata: {name: a, namespace: ns}\ndata: {'a/b': x, '..': y}"),
			[]string{`data[a/b]: Invalid value: "a/b": a valid config key must consist of...`,
				`data[..]: Invalid value: "..": must not be '..'...`}},
		{"a key twice", kindtest.Decode[corev1.ConfigMap](t, "metadata: {name: a, namespace: ns}\ndata: {k: x}\nbinaryData: {k: AA==}"),
			[]string{`data[k]: Invalid value: "k": duplicate of key present in binaryData`}},
		{"a byte more than 1 MiB", big, []string{"[]: Too long: may not be more than 1048576 bytes"}},
		{"no namespace", kindtest.Decode[corev1.ConfigMap](t, "metadata: {name: a}"), []string{"metadata.namespace: Required value"}},
	})
	frozen := kindtest.Decode[corev1.ConfigMap](t, "metadata: {name: a, namespace: ns}\ndata: {k: v}\nimmutable: true")
	kindtest.Changes(t, frozen, map[string]kindtest.Change[*corev1.ConfigMap]{
		"labels of an immutable one": {func(c *corev1.ConfigMap) { c.Labels = map[string]string{"a": "b"} }, nil},
		"data of an immutable one": {func(c *corev1.ConfigMap) { c.Data["k"] = "w" },
			[]string{"data: Forbidden: field is immutable when `immutable` is set"}},
		"thawing it": {func(c *corev1.ConfigMap) { c.Immutable = nil },
			[]string{"immutable: Forbidden: field is immutable when `immutable` is set"}},
		"binary data of an immutable one": {func(c *corev1.ConfigMap) { c.BinaryData = map[string][]byte{"b": {1}} },
			[]string{"binaryData: Forbidden: field is immutable when `immutable` is set"}},
	})
}
