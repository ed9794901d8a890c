package apps

import (
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

//lint:file-ignore SA1019 these rules warn about deprecated fields

func daemonSetResource() registry.Resource {
	return registry.Resource{
		Name: "daemonsets", Singular: "daemonset", ShortNames: []string{"ds"}, Categories: []string{"all"},
		Object: &appsv1.DaemonSet{}, List: &appsv1.DaemonSetList{}, AllowUnconditionalUpdate: true, Generations: true,
		Samples: []string{
			"metadata: {name: a, namespace: ns}\n" +
				"spec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}}",
		},
		Rules:    validate.WithStatus(validateDaemonSet, validateDaemonSetUpdate, validateDaemonSetStatus).CheckFinalizers(),
		Defaults: defaults.Of(defaultDaemonSet),
		Warnings: validate.Warn(warningsOfDaemonSet),
		Columns:  daemonSetColumns,
		Spec:     registry.SpecOf(func(o *appsv1.DaemonSet) *appsv1.DaemonSetSpec { return &o.Spec }),
		Status:   registry.StatusOf(func(o *appsv1.DaemonSet) *appsv1.DaemonSetStatus { return &o.Status }), StatusChangesMetadata: true,
		PrepareCreate: numberTemplate, PrepareUpdate: countTemplate, PrepareStatus: keepTemplateNumber,
		WarnOnUpdate: registry.NewGeneration,
		PodSpec:      registry.PodTemplate(func(o *appsv1.DaemonSet) *corev1.PodTemplateSpec { return &o.Spec.Template }),
	}
}

// Only the server writes the annotation with the generation of a DaemonSet's template. Controllers use it to find the pods that
// are older.

func numberTemplate(obj runtime.Object) {
	d := obj.(*appsv1.DaemonSet)
	setTemplateGeneration(d, max(1, templateGeneration(d)))
}

func countTemplate(obj, old runtime.Object) {
	d, before := obj.(*appsv1.DaemonSet), old.(*appsv1.DaemonSet)
	n := templateGeneration(before)
	if !apiequality.Semantic.DeepEqual(d.Spec.Template, before.Spec.Template) {
		n++
	}
	setTemplateGeneration(d, n)
}

func keepTemplateNumber(obj, old runtime.Object) {
	setTemplateGeneration(obj.(*appsv1.DaemonSet), templateGeneration(old.(*appsv1.DaemonSet)))
}

func setTemplateGeneration(d *appsv1.DaemonSet, n int64) {
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	d.Annotations[appsv1.DeprecatedTemplateGeneration] = strconv.FormatInt(n, 10)
}

func daemonSetColumns() columns.Printer {
	status := appsv1.DaemonSetStatus{}.SwaggerDoc()
	return columns.Show(func(s *appsv1.DaemonSet, now time.Time) []any {
		names, images := columns.ContainersOf(&s.Spec.Template.Spec)
		return []any{
			s.Name, int64(s.Status.DesiredNumberScheduled), int64(s.Status.CurrentNumberScheduled), int64(s.Status.NumberReady),
			int64(s.Status.UpdatedNumberScheduled), int64(s.Status.NumberAvailable),
			labels.FormatLabels(s.Spec.Template.Spec.NodeSelector), columns.AgeOf(s, now), names, images,
			metav1.FormatLabelSelector(s.Spec.Selector),
		}
	}, columns.Name(), columns.Number("Desired", status["desiredNumberScheduled"]), columns.Number("Current", status["currentNumberScheduled"]),
		columns.Number("Ready", status["numberReady"]), columns.Number("Up-to-date", status["updatedNumberScheduled"]),
		columns.Number("Available", status["numberAvailable"]), columns.Text("Node Selector", corev1.PodSpec{}.SwaggerDoc()["nodeSelector"]),
		columns.Age(), columns.Wide(columns.ContainerNames()), columns.Wide(columns.ContainerImages()),
		columns.Wide(columns.Text("Selector", appsv1.DaemonSetSpec{}.SwaggerDoc()["selector"])))
}

func defaultDaemonSet(s *appsv1.DaemonSet) {
	defaults.Point(&s.Spec.RevisionHistoryLimit, defaults.RevisionsKept)
	strategy := &s.Spec.UpdateStrategy
	defaults.Set(&strategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if strategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		defaults.Point(&strategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		defaults.Point(&strategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		defaults.Point(&strategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	defaults.PodSpec(&s.Spec.Template.Spec)
}

func validateDaemonSet(s *appsv1.DaemonSet) field.ErrorList {
	errs := validate.ObjectMeta(&s.ObjectMeta, validate.Namespaced, validation.NameIsDNSSubdomain)
	return append(errs, daemonSetSpec(s)...)
}

func validateDaemonSetUpdate(s, old *appsv1.DaemonSet) field.ErrorList {
	errs := validate.Immutable(s.Spec.Selector, old.Spec.Selector, field.NewPath("spec", "selector"))
	return append(errs, daemonSetSpec(s)...)
}

func daemonSetSpec(d *appsv1.DaemonSet) field.ErrorList {
	s, path := &d.Spec, field.NewPath("spec")
	at := path.Child("selector")
	errs := validate.Selector(s.Selector, at)
	if parsed, err := metav1.LabelSelectorAsSelector(s.Selector); err == nil {
		errs = append(errs, validate.LabelsMatch(&s.Template, parsed, path.Child("template"))...)
	}
	if s.Selector != nil && len(s.Selector.MatchLabels)+len(s.Selector.MatchExpressions) == 0 {
		errs = append(errs, field.Invalid(at, s.Selector, "empty selector is invalid for daemonset"))
	}
	errs = append(errs, validate.Template(&s.Template, path.Child("template"))...)
	errs = append(errs, validate.RestartAlways(&s.Template, path.Child("template"), "DaemonSet")...)
	errs = append(errs, validate.NonNegative(path, validate.NamedNumbers{
		"minReadySeconds": int64(s.MinReadySeconds), "revisionHistoryLimit": validate.OrZero(s.RevisionHistoryLimit),
		"templateGeneration": templateGeneration(d),
	})...)
	return append(errs, daemonStrategy(&s.UpdateStrategy, path.Child("updateStrategy"))...)
}

// templateGeneration returns the number of changes of a DaemonSet's template, or 0 without a count. apps/v1 replaced the field
// by an annotation, which controllers use in the names of pods.
func templateGeneration(d *appsv1.DaemonSet) int64 {
	n, err := strconv.ParseInt(d.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func daemonStrategy(s *appsv1.DaemonSetUpdateStrategy, path *field.Path) field.ErrorList {
	switch s.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
		return nil
	case appsv1.RollingUpdateDaemonSetStrategyType:
	default:
		return field.ErrorList{field.NotSupported(path, s, []appsv1.DaemonSetUpdateStrategyType{
			appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType,
		})}
	}
	rolling := path.Child("rollingUpdate")
	if s.RollingUpdate == nil {
		return field.ErrorList{field.Required(rolling, "")}
	}
	unavailable, surge := s.RollingUpdate.MaxUnavailable, s.RollingUpdate.MaxSurge
	atUnavailable, atSurge := rolling.Child("maxUnavailable"), rolling.Child("maxSurge")
	errs := append(validate.IntOrPercent(unavailable, atUnavailable), validate.IntOrPercent(surge, atSurge)...)
	errs = append(errs, validate.AtMost100Percent(unavailable, atUnavailable)...)
	errs = append(errs, validate.AtMost100Percent(surge, atSurge)...)
	switch down, up := validate.IntOrPercentValue(unavailable) != 0, validate.IntOrPercentValue(surge) != 0; {
	case down && up:
		errs = append(errs, field.Invalid(atSurge, surge, "may not be set when maxUnavailable is non-zero"))
	case !down && !up:
		errs = append(errs, field.Required(atUnavailable, "cannot be 0 when maxSurge is 0"))
	}
	return errs
}

func validateDaemonSetStatus(set, old *appsv1.DaemonSet) field.ErrorList {
	s, path := &set.Status, field.NewPath("status")
	errs := validate.NonNegative(path, validate.NamedNumbers{
		"currentNumberScheduled": int64(s.CurrentNumberScheduled), "numberMisscheduled": int64(s.NumberMisscheduled),
		"desiredNumberScheduled": int64(s.DesiredNumberScheduled), "numberReady": int64(s.NumberReady),
		"observedGeneration": s.ObservedGeneration, "updatedNumberScheduled": int64(s.UpdatedNumberScheduled),
		"numberAvailable": int64(s.NumberAvailable), "numberUnavailable": int64(s.NumberUnavailable),
		"collisionCount": validate.OrZero(s.CollisionCount),
	})
	return append(errs, neverLess(s.CollisionCount, old.Status.CollisionCount, path.Child("collisionCount"))...)
}

func warningsOfDaemonSet(o *appsv1.DaemonSet) []string {
	return validate.PodWarnings(&o.Spec.Template.Spec, &o.Spec.Template.ObjectMeta, field.NewPath("spec", "template"))
}
