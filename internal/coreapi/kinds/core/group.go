// Package core defines the kinds of the core API group, one per file.
package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{
		Version: corev1.SchemeGroupVersion, AddToScheme: corev1.AddToScheme, Priority: 18000, Register: registerOptions,
		Required: "everything is built on it",
		Resources: []registry.Resource{
			namespaceResource(), configMapResource(), secretResource(), serviceAccountResource(),
			serviceResource(), endpointsResource(), eventResource(), nodeResource(), podResource(),
			persistentVolumeResource(), persistentVolumeClaimResource(), limitRangeResource(),
			resourceQuotaResource(), podTemplateResource(), replicationControllerResource(),
		},
		Virtual: []registry.Virtual{
			{Name: "componentstatuses", Types: []runtime.Object{&corev1.ComponentStatus{}, &corev1.ComponentStatusList{}}, Storage: newComponentStatuses, Named: true},
			{Name: "bindings", Types: []runtime.Object{&corev1.Binding{}}, Storage: newLegacyBindings},
		},
		Types: []runtime.Object{
			&corev1.PodLogOptions{}, &corev1.PodExecOptions{}, &corev1.PodAttachOptions{}, &corev1.PodPortForwardOptions{},
			&corev1.PodProxyOptions{}, &corev1.NodeProxyOptions{}, &corev1.ServiceProxyOptions{},
		},
	}
}
