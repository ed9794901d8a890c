package apps

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

//lint:file-ignore SA1019 these rules warn about deprecated fields

func deploymentResource() registry.Resource {
	return registry.Resource{
		Name: "deployments", Singular: "deployment", ShortNames: []string{"deploy"}, Categories: []string{"all"},
		Object: &appsv1.Deployment{}, List: &appsv1.DeploymentList{}, WatchCache: true, AllowUnconditionalUpdate: true, Generations: true,
		Samples: []string{
			"metadata: {name: a, namespace: ns}\n" +
				"spec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}}",
		},
		Rules:    validate.WithStatus(validateDeployment, validateDeploymentUpdate, validateDeploymentStatus).CheckFinalizers(),
		Defaults: defaults.Of(defaultDeployment),
		Warnings: validate.Warn(warningsOfDeployment),
		Columns:  deploymentColumns,
		Spec:     registry.SpecOf(func(o *appsv1.Deployment) *appsv1.DeploymentSpec { return &o.Spec }),
		Status:   registry.StatusOf(func(o *appsv1.Deployment) *appsv1.DeploymentStatus { return &o.Status }), StatusChangesMetadata: true,
		SameContent: sameDeployment, PrepareStatus: keepDeploymentLabels, StatusResetFields: [][]string{{"metadata", "labels"}},
		WarnOnUpdate: registry.NewGeneration,
		PodSpec:      registry.PodTemplate(func(o *appsv1.Deployment) *corev1.PodTemplateSpec { return &o.Spec.Template }),
		Scale: registry.ScaleOf(func(o *appsv1.Deployment) (**int32, int32, *metav1.LabelSelector) {
			return &o.Spec.Replicas, o.Status.Replicas, o.Spec.Selector
		}),
	}
}

// sameDeployment also compares annotations, because the controller copies them to its ReplicaSets.
func sameDeployment(a, b runtime.Object) bool {
	x, y := a.(*appsv1.Deployment), b.(*appsv1.Deployment)
	return apiequality.Semantic.DeepEqual(x.Spec, y.Spec) && apiequality.Semantic.DeepEqual(x.Annotations, y.Annotations)
}

// keepDeploymentLabels reverts label changes of a status update: the controller sends the labels that it has read.
func keepDeploymentLabels(obj, old runtime.Object) {
	obj.(*appsv1.Deployment).Labels = old.(*appsv1.Deployment).Labels
}

func deploymentColumns() columns.Printer {
	spec, status := appsv1.DeploymentSpec{}.SwaggerDoc(), appsv1.DeploymentStatus{}.SwaggerDoc()
	return columns.Show(func(d *appsv1.Deployment, now time.Time) []any {
		names, images := columns.ContainersOf(&d.Spec.Template.Spec)
		selector := "<invalid>"
		if parsed, err := metav1.LabelSelectorAsSelector(d.Spec.Selector); err == nil {
			selector = parsed.String()
		}
		return []any{
			d.Name, fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, columns.Replicas(d.Spec.Replicas)), int64(d.Status.UpdatedReplicas),
			int64(d.Status.AvailableReplicas), columns.AgeOf(d, now), names, images, selector,
		}
	}, columns.Name(), columns.Text("Ready", "Number of the pod with ready state"), columns.Text("Up-to-date", status["updatedReplicas"]),
		columns.Text("Available", status["availableReplicas"]), columns.Age(), columns.Wide(columns.ContainerNames()), columns.Wide(columns.ContainerImages()),
		columns.Wide(columns.Text("Selector", spec["selector"])))
}

func defaultDeployment(d *appsv1.Deployment) {
	defaults.Point(&d.Spec.Replicas, 1)
	defaults.Point(&d.Spec.RevisionHistoryLimit, defaults.RevisionsKept)
	defaults.Point(&d.Spec.ProgressDeadlineSeconds, defaults.ProgressSeconds)
	strategy := &d.Spec.Strategy
	defaults.Set(&strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		defaults.Point(&strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		defaults.Point(&strategy.RollingUpdate.MaxUnavailable, intstr.FromString(defaults.RolloutShare))
		defaults.Point(&strategy.RollingUpdate.MaxSurge, intstr.FromString(defaults.RolloutShare))
	}
	defaults.PodSpec(&d.Spec.Template.Spec)
}

func validateDeployment(d *appsv1.Deployment) field.ErrorList {
	errs := validate.ObjectMeta(&d.ObjectMeta, validate.Namespaced, validation.NameIsDNSSubdomain)
	return append(errs, deploymentSpec(&d.Spec)...)
}

func validateDeploymentUpdate(d, old *appsv1.Deployment) field.ErrorList {
	return append(deploymentSpec(&d.Spec), validate.Immutable(d.Spec.Selector, old.Spec.Selector, field.NewPath("spec", "selector"))...)
}

func deploymentSpec(s *appsv1.DeploymentSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := validate.RequiredCount(s.Replicas, path.Child("replicas"))
	errs = append(errs, replicated(s.Selector, &s.Template, path)...)
	errs = append(errs, deploymentStrategy(&s.Strategy, path.Child("strategy"))...)
	errs = append(errs, validate.NonNegative(path, validate.NamedNumbers{
		"minReadySeconds": int64(s.MinReadySeconds), "revisionHistoryLimit": validate.OrZero(s.RevisionHistoryLimit),
		"progressDeadlineSeconds": validate.OrZero(s.ProgressDeadlineSeconds),
	})...)
	if d := s.ProgressDeadlineSeconds; d != nil && *d <= s.MinReadySeconds {
		errs = append(errs, field.Invalid(path.Child("progressDeadlineSeconds"), *d, "must be greater than minReadySeconds"))
	}
	return errs
}

// replicated checks the selector and the template of interchangeable pods. Deployments and ReplicaSets share the messages too,
// because kube-apiserver uses those for Deployments in both kinds.
func replicated(s *metav1.LabelSelector, t *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	errs := requiredSelector(s, path.Child("selector"), "empty selector is invalid for deployment")
	parsed, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return append(errs, field.Invalid(path.Child("selector"), s, "invalid label selector"))
	}
	at := path.Child("template")
	if !parsed.Empty() {
		errs = append(errs, validate.LabelsMatch(t, parsed, at)...)
	}
	errs = append(errs, validate.Template(t, at)...)
	return append(errs, validate.RestartAlways(t, at, "ReplicaSet")...)
}

func deploymentStrategy(s *appsv1.DeploymentStrategy, path *field.Path) field.ErrorList {
	rolling := path.Child("rollingUpdate")
	switch s.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if s.RollingUpdate != nil {
			return field.ErrorList{field.Forbidden(rolling, "may not be specified when strategy `type` is 'Recreate'")}
		}
		return nil
	case appsv1.RollingUpdateDeploymentStrategyType:
	default:
		return field.ErrorList{field.NotSupported(path, s, []appsv1.DeploymentStrategyType{
			appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType,
		})}
	}
	if s.RollingUpdate == nil {
		return field.ErrorList{field.Required(rolling, "this should be defaulted and never be nil")}
	}
	unavailable, surge := s.RollingUpdate.MaxUnavailable, s.RollingUpdate.MaxSurge
	errs := validate.IntOrPercent(unavailable, rolling.Child("maxUnavailable"))
	errs = append(errs, validate.IntOrPercent(surge, rolling.Child("maxSurge"))...)
	if validate.IntOrPercentValue(unavailable) == 0 && validate.IntOrPercentValue(surge) == 0 {
		errs = append(errs, field.Invalid(rolling.Child("maxUnavailable"), unavailable, "may not be 0 when `maxSurge` is 0"))
	}
	return append(errs, validate.AtMost100Percent(unavailable, rolling.Child("maxUnavailable"))...)
}

func validateDeploymentStatus(d, old *appsv1.Deployment) field.ErrorList {
	s, path := &d.Status, field.NewPath("status")
	errs := validate.NonNegative(path, validate.NamedNumbers{
		"observedGeneration": s.ObservedGeneration, "replicas": int64(s.Replicas), "updatedReplicas": int64(s.UpdatedReplicas),
		"readyReplicas": int64(s.ReadyReplicas), "availableReplicas": int64(s.AvailableReplicas),
		"unavailableReplicas": int64(s.UnavailableReplicas), "terminatingReplicas": validate.OrZero(s.TerminatingReplicas),
		"collisionCount": validate.OrZero(s.CollisionCount),
	})
	errs = append(errs, validate.Bounded(path, s.Replicas, "status.replicas", validate.NamedCounts{
		{"updatedReplicas", s.UpdatedReplicas}, {"readyReplicas", s.ReadyReplicas}, {"availableReplicas", s.AvailableReplicas},
	})...)
	errs = append(errs, validate.Bounded(path, s.ReadyReplicas, "readyReplicas", validate.NamedCounts{{"availableReplicas", s.AvailableReplicas}})...)
	return append(errs, neverLess(s.CollisionCount, old.Status.CollisionCount, path.Child("collisionCount"))...)
}

func warningsOfDeployment(o *appsv1.Deployment) []string {
	return append(validate.NameWarning(o.Name, validate.InPods), validate.PodWarnings(&o.Spec.Template.Spec, &o.Spec.Template.ObjectMeta, field.NewPath("spec", "template"))...)
}

// neverLess refuses to decrement a counter of name collisions.
func neverLess(next, old *int32, path *field.Path) field.ErrorList {
	if validate.OrZero(next) >= validate.OrZero(old) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, int32(validate.OrZero(next)), "cannot be decremented")}
}

// requiredSelector refuses an empty selector, with which a controller would adopt every pod of its namespace.
func requiredSelector(s *metav1.LabelSelector, path *field.Path, empty string) field.ErrorList {
	if s == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := validate.Selector(s, path)
	if len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		errs = append(errs, field.Invalid(path, s, empty))
	}
	return errs
}
