package coreapi

import (
	policyv1 "k8s.io/api/policy/v1"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/validate"
)

func podDisruptionBudgetResource() resource {
	return resource{
		name: "poddisruptionbudgets", singular: "poddisruptionbudget", shortNames: []string{"pdb"},
		object: &policyv1.PodDisruptionBudget{}, list: &policyv1.PodDisruptionBudgetList{}, cached: true, generations: true,
		rules:   validate.Full(validate.ValidatePodDisruptionBudget, validate.ValidatePodDisruptionBudgetUpdate, validate.ValidatePodDisruptionBudgetStatus),
		columns: columns.PodDisruptionBudgetColumns,
		spec:    specOf(func(o *policyv1.PodDisruptionBudget) *policyv1.PodDisruptionBudgetSpec { return &o.Spec }),
		status:  statusOf(func(o *policyv1.PodDisruptionBudget) *policyv1.PodDisruptionBudgetStatus { return &o.Status }), statusMeta: true,
	}
}
