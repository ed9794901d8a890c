package coreapi

import (
	schedulingv1 "k8s.io/api/scheduling/v1"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/validate"
)

func priorityClassResource() resource {
	return resource{
		name: "priorityclasses", singular: "priorityclass", shortNames: []string{"pc"}, clusterScoped: true,
		object: &schedulingv1.PriorityClass{}, list: &schedulingv1.PriorityClassList{}, cached: true, blindUpdate: true,
		rules:       validate.Changing(validate.ValidatePriorityClass, validate.ValidatePriorityClassUpdate),
		defaults:    defaults.Of(defaults.DefaultPriorityClass),
		columns:     columns.PriorityClassColumns,
		generations: true, sameContent: sameAlways,
	}
}
