package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"

	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/selectable"
	"portico.dev/internal/coreapi/validate"
)

func serviceResource() registry.Resource {
	return registry.Resource{
		Name: "services", Singular: "service", ShortNames: []string{"svc"}, Categories: []string{"all"},
		Object: &corev1.Service{}, List: &corev1.ServiceList{}, Directory: "services/specs",
		Samples: []string{
			"metadata: {name: 2nd, namespace: ns}\n" +
				"spec: {ports: [{port: 80}], selector: {app: a}}",
			"metadata: {name: a, namespace: ns}\n" +
				"spec: {type: ExternalName, externalName: localhost, ports: [{port: 443}]}",
			"metadata: {name: a, namespace: ns}\n" +
				"spec: {type: LoadBalancer, ports: [{port: 80, targetPort: web}]}",
			"metadata: {name: a, namespace: ns}\n" +
				"spec: {clusterIP: None}",
		},
		Rules:      validate.WithStatus(validateService, validateServiceUpdate, validateServiceStatus),
		Defaults:   defaults.Of(defaultService),
		Warnings:   validate.Warn(warningsOfService),
		Columns:    serviceColumns,
		Fields:     serviceFields(),
		WatchCache: true, ReturnDeletedObject: true, AllowCreateOnUpdate: true, AllowUnconditionalUpdate: true,
		Spec:   registry.SpecOf(func(s *corev1.Service) *corev1.ServiceSpec { return &s.Spec }),
		Status: registry.StatusOf(func(s *corev1.Service) *corev1.ServiceStatus { return &s.Status }), StatusChangesMetadata: true,
		Storages: serviceStorages,
	}
}

func serviceFields() *selectable.Fields {
	return selectable.Of(selectable.InNamespace("spec.clusterIP", "spec.type"), func(set fields.Set, o *corev1.Service) {
		set["spec.clusterIP"] = o.Spec.ClusterIP
		set["spec.type"] = string(o.Spec.Type)
	})
}
