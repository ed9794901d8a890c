package scheduling_test

import (
	"testing"

	schedulingv1 "k8s.io/api/scheduling/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestDefaultsOfTheCluster(t *testing.T) {
	kindtest.Defaults(t, []kindtest.Default{
		{"a priority", &schedulingv1.PriorityClass{}, "value: 1", "metadata: {}\nvalue: 1\npreemptionPolicy: PreemptLowerPriority"},
	})
}
