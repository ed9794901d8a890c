package kinds_test

import (
	"testing"

	policyv1 "k8s.io/api/policy/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestPolicyWorkloadTables(t *testing.T) {
	kindtest.Table[policyv1.PodDisruptionBudget](t,
		"metadata: {name: least}\nspec: {minAvailable: 50%}\nstatus: {disruptionsAllowed: 2, currentHealthy: 0, desiredHealthy: 0, expectedPods: 0}", "metadata: {name: most}\nspec: {maxUnavailable: 1}")
}
