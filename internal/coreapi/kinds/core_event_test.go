package kinds_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestOldEvents(t *testing.T) {
	of := func(namespace, rest string) *corev1.Event {
		return kindtest.Decode[corev1.Event](t, "metadata: {name: a, namespace: "+namespace+"}\n"+rest)
	}
	kindtest.Refuses(t, []kindtest.Create{
		{"an event about a pod of another namespace", of("ns", "involvedObject: {namespace: other}"),
			[]string{`involvedObject.namespace: Invalid value: "other": does not match event.namespace`}},
		{"an event about a node, outside default", of("ns", "involvedObject: {kind: Node}"),
			[]string{`involvedObject.namespace: Invalid value: "": does not match event.namespace`}},
		{"the newer kind in the old API", of("ns", "involvedObject: {namespace: ns}\neventTime: '2026-01-01T00:00:00.000000Z'"), []string{
			"reportingComponent: Required value", `reportingComponent: Invalid value: "": name part must be non-empty`,
			`reportingComponent: Invalid value: "": name part must consist of...`,
			"reportingInstance: Required value", "action: Required value", "reason: Required value"}},
	})
}
