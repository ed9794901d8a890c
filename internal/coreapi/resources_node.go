package coreapi

import (
	nodev1 "k8s.io/api/node/v1"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/validate"
)

func runtimeClassResource() resource {
	return resource{
		name: "runtimeclasses", singular: "runtimeclass", clusterScoped: true,
		object: &nodev1.RuntimeClass{}, list: &nodev1.RuntimeClassList{}, cached: true, createOnUpdate: true,
		rules:    validate.Changing(validate.ValidateRuntimeClass, validate.ValidateRuntimeClassUpdate),
		defaults: defaults.Of(defaults.DefaultRuntimeClass),
		warnings: validate.Warn(validate.RuntimeClassWarnings),
		columns:  columns.RuntimeClassColumns,
	}
}
