package kinds_test

import (
	"testing"

	nodev1 "k8s.io/api/node/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestNodeDefaultsOfTheCluster(t *testing.T) {
	kindtest.Defaults(t, []kindtest.Default{
		{"a runtime's overhead of less than a thousandth", &nodev1.RuntimeClass{}, "handler: h\noverhead: {podFixed: {cpu: 1u}}", "metadata: {}\nhandler: h\noverhead: {podFixed: {cpu: 1m}}"},
	})
}
