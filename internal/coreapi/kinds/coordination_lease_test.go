package kinds_test

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestLeases(t *testing.T) {
	of := func(spec string) *coordinationv1.Lease {
		return kindtest.Decode[coordinationv1.Lease](t, "metadata: {name: a, namespace: ns}\nspec: {"+spec+"}")
	}
	kindtest.Refuses(t, []kindtest.Create{
		{"a lease of no time", of("leaseDurationSeconds: 0, leaseTransitions: -1"), []string{
			"spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
			"spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0"}},
		{"a strategy that nobody has", of("strategy: Loudest"),
			[]string{`spec.strategy: Unsupported value: "Loudest": supported values: "OldestEmulationVersion"`}},
		{"a strategy of one's own", of("strategy: example.com/loudest, preferredHolder: me"), nil},
		{"a preferred holder without a strategy", of("preferredHolder: me"),
			[]string{"spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined"}},
	})
}
