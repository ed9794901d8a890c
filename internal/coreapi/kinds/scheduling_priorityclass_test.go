package kinds_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/utils/ptr"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestPriorityClasses(t *testing.T) {
	class := func(m string) *schedulingv1.PriorityClass { return kindtest.Decode[schedulingv1.PriorityClass](t, m) }
	kindtest.Refuses(t, []kindtest.Create{
		{"above the system", class("metadata: {name: a}\nvalue: 1000000001"), []string{"value: Forbidden: maximum allowed value of a user defined priority is 1000000000"}},
		{"in the system's name", class("metadata: {name: system-a}\nvalue: 1"), []string{
			"metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-a is not a known system priority class"}},
		{"the system's own, worth less", class("metadata: {name: system-cluster-critical}\nvalue: 1"), []string{
			"metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: value of system-cluster-critical PriorityClass must be 2000000000"}},
		{"a policy that does not exist", class("metadata: {name: a}\npreemptionPolicy: Always"), []string{`preemptionPolicy: Unsupported value: "Always": supported values: "Never", "PreemptLowerPriority"`}},
	})
	kindtest.Changes(t, class("metadata: {name: a}\nvalue: 1"), map[string]kindtest.Change[*schedulingv1.PriorityClass]{
		"the default": {func(c *schedulingv1.PriorityClass) { c.GlobalDefault, c.Description = true, "d" }, nil},
		"worth more":  {func(c *schedulingv1.PriorityClass) { c.Value = 2 }, []string{"value: Forbidden: may not be changed in an update."}},
		"gentler":     {func(c *schedulingv1.PriorityClass) { c.PreemptionPolicy = ptr.To(corev1.PreemptNever) }, []string{`preemptionPolicy: Invalid value: "Never": field is immutable`}},
	})
}
