package kinds_test

import (
	"testing"

	schedulingv1 "k8s.io/api/scheduling/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestSchedulingDefaultsOfTheCluster(t *testing.T) {
	kindtest.Defaults(t, []kindtest.Default{
		{"a priority", &schedulingv1.PriorityClass{}, "value: 1", "metadata: {}\nvalue: 1\npreemptionPolicy: PreemptLowerPriority"},
	})
}
