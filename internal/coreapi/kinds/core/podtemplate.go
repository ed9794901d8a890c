package core

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

//lint:file-ignore SA1019 these rules warn about deprecated fields

func podTemplateResource() registry.Resource {
	return registry.Resource{
		Name: "podtemplates", Singular: "podtemplate",
		Object: &corev1.PodTemplate{}, List: &corev1.PodTemplateList{}, ReturnDeletedObject: true, AllowUnconditionalUpdate: true, Generations: true,
		Samples: []string{
			"metadata: {name: a, namespace: ns}\n" +
				"template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}",
		},
		Rules:    validate.OnUpdate(validatePodTemplate, validatePodTemplateUpdate).CheckFinalizers(),
		Defaults: defaults.Of(defaultPodTemplate),
		Warnings: validate.Warn(warningsOfPodTemplate),
		Columns:  podTemplateColumns,
		PodSpec:  registry.PodSpecOf(func(t *corev1.PodTemplate) *corev1.PodSpec { return &t.Template.Spec }, "template", "spec"),
		Spec:     registry.PartOf("template", func(t *corev1.PodTemplate) *corev1.PodTemplateSpec { return &t.Template }), WarnOnUpdate: registry.NewGeneration,
	}
}

func podTemplateColumns() columns.Printer {
	return columns.Show(func(t *corev1.PodTemplate, _ time.Time) []any {
		names, images := columns.ContainersOf(&t.Template.Spec)
		return []any{t.Name, names, images, labels.FormatLabels(t.Template.Labels)}
	}, columns.Name(), columns.ContainerNames(), columns.ContainerImages(), columns.Text("Pod Labels", "The labels for the pod template."))
}

func defaultPodTemplate(t *corev1.PodTemplate) { defaults.PodSpec(&t.Template.Spec) }

func validatePodTemplate(t *corev1.PodTemplate) field.ErrorList {
	errs := validate.ObjectMeta(&t.ObjectMeta, validate.Namespaced, validation.NameIsDNSSubdomain)
	return append(errs, validate.Template(&t.Template, field.NewPath("template"))...)
}

func validatePodTemplateUpdate(t, _ *corev1.PodTemplate) field.ErrorList {
	return validate.Template(&t.Template, field.NewPath("template"))
}

func warningsOfPodTemplate(o *corev1.PodTemplate) []string {
	return validate.PodWarnings(&o.Template.Spec, &o.Template.ObjectMeta, field.NewPath("template"))
}
