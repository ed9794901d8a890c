// Package policy has the kinds of the group of policy: a file for each, which says everything about it.
package policy

import (
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{
		Version: policyv1.SchemeGroupVersion, AddToScheme: policyv1.AddToScheme, Resources: []registry.Resource{podDisruptionBudgetResource()},
		Virtual: []runtime.Object{&policyv1.Eviction{}},
	}
}
