package coreapi

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/validate"
)

func flowSchemaResource() resource {
	return resource{
		name: "flowschemas", singular: "flowschema", clusterScoped: true, blindUpdate: true, generations: true,
		object: &flowcontrolv1.FlowSchema{}, list: &flowcontrolv1.FlowSchemaList{},
		rules:    validate.Full(validate.ValidateFlowSchema, validate.ValidateFlowSchemaUpdate, validate.ValidateFlowSchemaStatus),
		defaults: defaults.Of(defaults.DefaultFlowSchema),
		columns:  columns.FlowSchemaColumns,
		spec:     specOf(func(f *flowcontrolv1.FlowSchema) *flowcontrolv1.FlowSchemaSpec { return &f.Spec }),
		status:   statusOf(func(f *flowcontrolv1.FlowSchema) *flowcontrolv1.FlowSchemaStatus { return &f.Status }),
	}
}

func priorityLevelConfigurationResource() resource {
	return resource{
		name: "prioritylevelconfigurations", singular: "prioritylevelconfiguration", clusterScoped: true, blindUpdate: true, generations: true,
		object: &flowcontrolv1.PriorityLevelConfiguration{}, list: &flowcontrolv1.PriorityLevelConfigurationList{},
		rules:    validate.Full(validate.ValidatePriorityLevelConfiguration, validate.ValidatePriorityLevelConfigurationUpdate, validate.ValidatePriorityLevelConfigurationStatus),
		defaults: defaults.Of(defaults.DefaultPriorityLevelConfiguration),
		columns:  columns.PriorityLevelConfigurationColumns,
		spec: specOf(func(p *flowcontrolv1.PriorityLevelConfiguration) *flowcontrolv1.PriorityLevelConfigurationSpec {
			return &p.Spec
		}),
		status: statusOf(func(p *flowcontrolv1.PriorityLevelConfiguration) *flowcontrolv1.PriorityLevelConfigurationStatus {
			return &p.Status
		}),
	}
}
