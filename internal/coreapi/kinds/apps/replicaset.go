package apps

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

//lint:file-ignore SA1019 these rules warn about deprecated fields

func replicaSetResource() registry.Resource {
	return registry.Resource{
		Name: "replicasets", Singular: "replicaset", ShortNames: []string{"rs"}, Categories: []string{"all"},
		Object: &appsv1.ReplicaSet{}, List: &appsv1.ReplicaSetList{}, WatchCache: true, AllowUnconditionalUpdate: true, Generations: true,
		Samples: []string{
			"metadata: {name: a, namespace: ns}\n" +
				"spec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}}",
		},
		Rules:    validate.WithStatus(validateReplicaSet, validateReplicaSetUpdate, validateReplicaSetStatus).CheckFinalizers(),
		Defaults: defaults.Of(defaultReplicaSet),
		Warnings: validate.Warn(warningsOfReplicaSet),
		Columns:  replicaSetColumns,
		Spec:     registry.SpecOf(func(o *appsv1.ReplicaSet) *appsv1.ReplicaSetSpec { return &o.Spec }),
		Status:   registry.StatusOf(func(o *appsv1.ReplicaSet) *appsv1.ReplicaSetStatus { return &o.Status }), StatusChangesMetadata: true,
		WarnOnUpdate: registry.NewGeneration,
		PodSpec:      registry.PodTemplate(func(o *appsv1.ReplicaSet) *corev1.PodTemplateSpec { return &o.Spec.Template }),
		Scale: registry.ScaleOf(func(o *appsv1.ReplicaSet) (**int32, int32, *metav1.LabelSelector) {
			return &o.Spec.Replicas, o.Status.Replicas, o.Spec.Selector
		}),
	}
}

func replicaSetColumns() columns.Printer {
	spec, status := appsv1.ReplicaSetSpec{}.SwaggerDoc(), appsv1.ReplicaSetStatus{}.SwaggerDoc()
	return columns.Show(func(s *appsv1.ReplicaSet, now time.Time) []any {
		names, images := columns.ContainersOf(&s.Spec.Template.Spec)
		return []any{
			s.Name, columns.Replicas(s.Spec.Replicas), int64(s.Status.Replicas), int64(s.Status.ReadyReplicas), columns.AgeOf(s, now),
			names, images, metav1.FormatLabelSelector(s.Spec.Selector),
		}
	}, columns.Name(), columns.Number("Desired", spec["replicas"]), columns.Number("Current", status["replicas"]), columns.Number("Ready", status["readyReplicas"]),
		columns.Age(), columns.Wide(columns.ContainerNames()), columns.Wide(columns.ContainerImages()), columns.Wide(columns.Text("Selector", spec["selector"])))
}

func defaultReplicaSet(s *appsv1.ReplicaSet) {
	defaults.Point(&s.Spec.Replicas, 1)
	defaults.PodSpec(&s.Spec.Template.Spec)
}

func validateReplicaSet(s *appsv1.ReplicaSet) field.ErrorList {
	errs := validate.ObjectMeta(&s.ObjectMeta, validate.Namespaced, validation.NameIsDNSSubdomain)
	return append(errs, replicaSetSpec(&s.Spec)...)
}

func validateReplicaSetUpdate(s, old *appsv1.ReplicaSet) field.ErrorList {
	return append(replicaSetSpec(&s.Spec), validate.Immutable(s.Spec.Selector, old.Spec.Selector, field.NewPath("spec", "selector"))...)
}

func replicaSetSpec(s *appsv1.ReplicaSetSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := validate.RequiredCount(s.Replicas, path.Child("replicas"))
	errs = append(errs, validate.NonNegative(path, validate.NamedNumbers{"minReadySeconds": int64(s.MinReadySeconds)})...)
	return append(errs, replicated(s.Selector, &s.Template, path)...)
}

func validateReplicaSetStatus(r, _ *appsv1.ReplicaSet) field.ErrorList {
	s, path := &r.Status, field.NewPath("status")
	errs := validate.NonNegative(path, validate.NamedNumbers{
		"replicas": int64(s.Replicas), "fullyLabeledReplicas": int64(s.FullyLabeledReplicas), "readyReplicas": int64(s.ReadyReplicas),
		"availableReplicas": int64(s.AvailableReplicas), "observedGeneration": s.ObservedGeneration,
		"terminatingReplicas": validate.OrZero(s.TerminatingReplicas),
	})
	errs = append(errs, validate.Bounded(path, s.Replicas, "status.replicas", validate.NamedCounts{
		{"fullyLabeledReplicas", s.FullyLabeledReplicas}, {"readyReplicas", s.ReadyReplicas}, {"availableReplicas", s.AvailableReplicas},
	})...)
	return append(errs, validate.Bounded(path, s.ReadyReplicas, "readyReplicas", validate.NamedCounts{{"availableReplicas", s.AvailableReplicas}})...)
}

func warningsOfReplicaSet(o *appsv1.ReplicaSet) []string {
	return append(validate.NameWarning(o.Name, validate.InPods), validate.PodWarnings(&o.Spec.Template.Spec, &o.Spec.Template.ObjectMeta, field.NewPath("spec", "template"))...)
}
