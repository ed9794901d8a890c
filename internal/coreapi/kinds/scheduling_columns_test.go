package kinds_test

import (
	"testing"

	schedulingv1 "k8s.io/api/scheduling/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestSchedulingClusterTables(t *testing.T) {
	kindtest.Table[schedulingv1.PriorityClass](t,
		"metadata: {name: a}\nvalue: 10\nglobalDefault: true\npreemptionPolicy: Never", "metadata: {name: b}\nvalue: -5")
}
