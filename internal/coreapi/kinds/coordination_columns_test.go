package kinds_test

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestCoordinationRegistrationTables(t *testing.T) {
	kindtest.Table[coordinationv1.Lease](t,
		"metadata: {name: free}", "metadata: {name: held}\nspec: {holderIdentity: me}")
}
