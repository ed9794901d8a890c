// Package core has the kinds of the core group: a file for each, which says everything about it.
package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{
		Version: corev1.SchemeGroupVersion, AddToScheme: corev1.AddToScheme, Resources: []registry.Resource{namespaceResource(), configMapResource(), secretResource(), serviceAccountResource(), serviceResource(), endpointsResource(), eventResource(), nodeResource(), podResource(), persistentVolumeResource(), persistentVolumeClaimResource(), limitRangeResource(), resourceQuotaResource(), podTemplateResource(), replicationControllerResource()},
		Virtual: []runtime.Object{&corev1.ComponentStatus{}, &corev1.ComponentStatusList{}, &corev1.Binding{}},
	}
}
