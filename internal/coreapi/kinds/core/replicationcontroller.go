package core

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/selectable"
	"portico.dev/internal/coreapi/validate"
)

//lint:file-ignore SA1019 these rules warn about deprecated fields

func replicationControllerResource() registry.Resource {
	return registry.Resource{
		Name: "replicationcontrollers", Singular: "replicationcontroller", ShortNames: []string{"rc"}, Categories: []string{"all"},
		Object: &corev1.ReplicationController{}, List: &corev1.ReplicationControllerList{}, Directory: "controllers",
		Samples: []string{
			"metadata: {name: a, namespace: ns}\n" +
				"spec: {template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}}",
		},
		Rules:                    validate.WithStatus(validateReplicationController, validateReplicationControllerUpdate, validateReplicationControllerStatus).CheckFinalizers(),
		Defaults:                 defaults.Of(defaultReplicationController),
		Warnings:                 validate.Warn(warningsOfReplicationController),
		Columns:                  replicationControllerColumns,
		Fields:                   replicationControllerFields(),
		AllowUnconditionalUpdate: true, Generations: true,
		Spec:   registry.SpecOf(func(c *corev1.ReplicationController) *corev1.ReplicationControllerSpec { return &c.Spec }),
		Status: registry.StatusOf(func(c *corev1.ReplicationController) *corev1.ReplicationControllerStatus { return &c.Status }), StatusChangesMetadata: true,
		DeleteStrategy: registry.OrphanDependents, WarnOnUpdate: registry.NewGeneration,
		PodSpec: registry.PodTemplate(func(c *corev1.ReplicationController) *corev1.PodTemplateSpec { return c.Spec.Template }),
		Scale: registry.ScaleOf(func(c *corev1.ReplicationController) (**int32, int32, *metav1.LabelSelector) {
			return &c.Spec.Replicas, c.Status.Replicas, &metav1.LabelSelector{MatchLabels: c.Spec.Selector}
		}),
	}
}

func replicationControllerColumns() columns.Printer {
	spec, status := corev1.ReplicationControllerSpec{}.SwaggerDoc(), corev1.ReplicationControllerStatus{}.SwaggerDoc()
	return columns.Show(func(c *corev1.ReplicationController, now time.Time) []any {
		var names, images string
		if c.Spec.Template != nil {
			names, images = columns.ContainersOf(&c.Spec.Template.Spec)
		}
		return []any{
			c.Name, columns.Replicas(c.Spec.Replicas), int64(c.Status.Replicas), int64(c.Status.ReadyReplicas), columns.AgeOf(c, now),
			names, images, labels.FormatLabels(c.Spec.Selector),
		}
	}, columns.Name(), columns.Number("Desired", spec["replicas"]), columns.Number("Current", status["replicas"]), columns.Number("Ready", status["readyReplicas"]),
		columns.Age(), columns.Wide(columns.ContainerNames()), columns.Wide(columns.ContainerImages()), columns.Wide(columns.Text("Selector", spec["selector"])))
}

// defaultReplicationController copies labels and selector from the template: the kind is older than required selectors.
func defaultReplicationController(c *corev1.ReplicationController) {
	defaults.Point(&c.Spec.Replicas, 1)
	if c.Spec.Template == nil {
		return
	}
	if labels := c.Spec.Template.Labels; labels != nil {
		if len(c.Spec.Selector) == 0 {
			c.Spec.Selector = labels
		}
		if len(c.Labels) == 0 {
			c.Labels = labels
		}
	}
	defaults.PodSpec(&c.Spec.Template.Spec)
}

func replicationControllerFields() *selectable.Fields {
	return selectable.Of(selectable.InNamespace("status.replicas"), func(set fields.Set, o *corev1.ReplicationController) {
		set["status.replicas"] = strconv.Itoa(int(o.Status.Replicas))
	})
}

func validateReplicationController(c *corev1.ReplicationController) field.ErrorList {
	errs := validate.ObjectMeta(&c.ObjectMeta, validate.Namespaced, validation.NameIsDNSSubdomain)
	return append(errs, replicationControllerSpec(&c.Spec)...)
}

func validateReplicationControllerUpdate(c, _ *corev1.ReplicationController) field.ErrorList {
	return replicationControllerSpec(&c.Spec)
}

func replicationControllerSpec(s *corev1.ReplicationControllerSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := validate.NonNegative(path, validate.NamedNumbers{"minReadySeconds": int64(s.MinReadySeconds)})
	if len(s.Selector) == 0 {
		errs = append(errs, field.Required(path.Child("selector"), ""))
	}
	errs = append(errs, validate.RequiredCount(s.Replicas, path.Child("replicas"))...)
	at := path.Child("template")
	if s.Template == nil {
		return append(errs, field.Required(at, ""))
	}
	if len(s.Selector) > 0 {
		errs = append(errs, validate.LabelsMatch(s.Template, labels.Set(s.Selector).AsSelector(), at)...)
	}
	errs = append(errs, validate.Template(s.Template, at)...)
	return append(errs, validate.RestartAlways(s.Template, at, "ReplicationController")...)
}

func validateReplicationControllerStatus(c, _ *corev1.ReplicationController) field.ErrorList {
	s, path := &c.Status, field.NewPath("status")
	errs := validate.NonNegative(path, validate.NamedNumbers{
		"replicas": int64(s.Replicas), "fullyLabeledReplicas": int64(s.FullyLabeledReplicas), "readyReplicas": int64(s.ReadyReplicas),
		"availableReplicas": int64(s.AvailableReplicas), "observedGeneration": s.ObservedGeneration,
	})
	errs = append(errs, validate.Bounded(path, s.Replicas, "status.replicas", validate.NamedCounts{
		{"fullyLabeledReplicas", s.FullyLabeledReplicas}, {"readyReplicas", s.ReadyReplicas}, {"availableReplicas", s.AvailableReplicas},
	})...)
	return append(errs, validate.Bounded(path, s.ReadyReplicas, "readyReplicas", validate.NamedCounts{{"availableReplicas", s.AvailableReplicas}})...)
}

func warningsOfReplicationController(o *corev1.ReplicationController) []string {
	if o.Spec.Template == nil {
		return validate.NameWarning(o.Name, validate.InPods)
	}
	return append(validate.NameWarning(o.Name, validate.InPods), validate.PodWarnings(&o.Spec.Template.Spec, &o.Spec.Template.ObjectMeta, field.NewPath("spec", "template"))...)
}
