// Package policy defines the kinds of the API group policy, one per file.
package policy

import (
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{
		Version: policyv1.SchemeGroupVersion, AddToScheme: policyv1.AddToScheme, Priority: 16500,
		Resources: []registry.Resource{
			podDisruptionBudgetResource(),
		},
		Types: []runtime.Object{&policyv1.Eviction{}},
	}
}
