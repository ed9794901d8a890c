package coreapi

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/coreapi/kinds/batch"
	"portico.dev/internal/coreapi/registry"
)

// addWorkloadDoors opens what follows from the kinds that make pods and is in no entry of the table: scales, parts of
// pods, evictions, and autoscalers under their other version.
func (s *storages) addWorkloadDoors(c *codecs, byResource map[schema.GroupResource]*registry.REST) {
	for name, as := range scalables() {
		for _, g := range s.groups {
			if g.version.Group == name.Group {
				g.storage[name.Resource+"/scale"] = newScales(byResource[name], as)
			}
		}
	}
	core := s.of(corev1.SchemeGroupVersion)
	pods, budgets := byResource[corev1.Resource("pods")], byResource[policyv1.Resource("poddisruptionbudgets")]
	for path, storage := range podDoors(c, pods, budgets) {
		core[path] = storage
	}
	orphaned := byResource[batchv1.Resource("jobs")]
	s.of(batchv1.SchemeGroupVersion)["jobs"] = batch.Jobs{REST: orphaned}
	newest, oldest := s.of(autoscalingv2.SchemeGroupVersion), s.of(autoscalingv1.SchemeGroupVersion)
	for path, storage := range newest {
		oldest[path] = storage
	}
}
