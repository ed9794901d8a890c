package coreapi

import (
	"reflect"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/coreapi/kinds/cluster"
	"portico.dev/internal/coreapi/registry"
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
				s := strategyOf(t, obj)
				s.DropAlphaFields(obj, nil)
				if got := s.Resource.PodSpec.Of(obj); !apiequality.Semantic.DeepEqual(*got, want.Spec) {
					t.Errorf("%s: got %v, want %v", name, got, want.Spec)
				}
			}
			next := stored.DeepCopy()
			if strategyOf(t, next).DropAlphaFields(next, stored); !apiequality.Semantic.DeepEqual(next, stored) {
				t.Errorf("what is stored is lost by an update: %v", next)
			}
		})
	}
}

func TestSchedulingOfJobsIsDropped(t *testing.T) {
	spec := batchv1.JobSpec{Scheduling: &batchv1.JobSchedulingConfiguration{}}
	for name, anew := range map[string]func() runtime.Object{
		"a job": func() runtime.Object { return &batchv1.Job{Spec: *spec.DeepCopy()} },
		"a cron job": func() runtime.Object {
			return &batchv1.CronJob{Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: *spec.DeepCopy()}}}
		},
	} {
		made := anew()
		if strategyOf(t, made).PrepareForCreate(t.Context(), made); jobSpecOf(made).Scheduling != nil {
			t.Errorf("%s keeps it", name)
		}
		next := anew()
		if strategyOf(t, next).PrepareForUpdate(t.Context(), next, anew()); jobSpecOf(next).Scheduling == nil {
			t.Errorf("%s that is stored with it loses it", name)
		}
	}
}

func jobSpecOf(obj runtime.Object) *batchv1.JobSpec {
	if c, is := obj.(*batchv1.CronJob); is {
		return &c.Spec.JobTemplate.Spec
	}
	return &obj.(*batchv1.Job).Spec
}

// strategyOf is the strategy of the kind of obj.
func strategyOf(t *testing.T, obj runtime.Object) registry.Strategy {
	t.Helper()
	for _, g := range cluster.All() {
		for _, r := range g.Resources {
			if reflect.TypeOf(r.Object) == reflect.TypeOf(obj) {
				return registry.NewStrategy(&registry.Environment{}, &r)
			}
		}
	}
	t.Fatalf("no kind has objects of %T", obj)
	return registry.Strategy{}
}

func podOf(t *testing.T, spec string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte("spec: {"+spec+"}"), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}
