package coreapi

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestAlphaFieldsOfPodsAreDropped(t *testing.T) {
	const plain = "containers: [{name: c, livenessProbe: {httpGet: {path: /}}, volumeMounts: [{name: v}]}], volumes: [{name: v, emptyDir: {}}]"
	for situation, in := range map[string]string{
		"nothing of the kind": plain,
		"of the pod":          plain + ", evictionResponders: [{name: n}], schedulingGroup: {podGroupName: g}",
		"of a probe":          "containers: [{name: c, livenessProbe: {httpGet: {path: /, protocol: H2C}}, volumeMounts: [{name: v}]}], volumes: [{name: v, emptyDir: {}}]",
		"of a mount":          "containers: [{name: c, livenessProbe: {httpGet: {path: /}}, volumeMounts: [{name: v, bindMountOptions: [o]}]}], volumes: [{name: v, emptyDir: {}}]",
		"of a directory":      "containers: [{name: c, livenessProbe: {httpGet: {path: /}}, volumeMounts: [{name: v}]}], volumes: [{name: v, emptyDir: {mode: 3}}]",
	} {
		t.Run(situation, func(t *testing.T) {
			want, given := podOf(t, plain), podOf(t, in)
			job := &batchv1.Job{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: *given.Spec.DeepCopy()}}}
			stored := given.DeepCopy()
			for name, obj := range map[string]runtime.Object{"a pod": given, "a job": job} {
				s := kindtest.StrategyOf(t, obj)
				s.DropAlphaFields(obj, nil)
				if got := s.Resource.PodSpec.Of(obj); !apiequality.Semantic.DeepEqual(*got, want.Spec) {
					t.Errorf("spec of the new %s after DropAlphaFields = %v, want %v", name, got, want.Spec)
				}
			}
			next := stored.DeepCopy()
			if kindtest.StrategyOf(t, next).DropAlphaFields(next, stored); !apiequality.Semantic.DeepEqual(next, stored) {
				t.Errorf("after DropAlphaFields on an update without changes: %v, want the stored object %v", next, stored)
			}
		})
	}
}

func podOf(t *testing.T, spec string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte("spec: {"+spec+"}"), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}
