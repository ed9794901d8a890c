package kinds_test

import (
	"testing"

	nodev1 "k8s.io/api/node/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestNodeClusterTables(t *testing.T) {
	kindtest.Table[nodev1.RuntimeClass](t, "metadata: {name: sandbox}\nhandler: runsc")
}
