package apps

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

//lint:file-ignore SA1019 these rules warn about deprecated fields

func statefulSetResource() registry.Resource {
	return registry.Resource{
		Name: "statefulsets", Singular: "statefulset", ShortNames: []string{"sts"}, Categories: []string{"all"},
		Object: &appsv1.StatefulSet{}, List: &appsv1.StatefulSetList{}, AllowUnconditionalUpdate: true, Generations: true,
		Samples: []string{
			"metadata: {name: a, namespace: ns}\n" +
				"spec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}}",
		},
		Rules:    validate.WithStatus(validateStatefulSet, validateStatefulSetUpdate, validateStatefulSetStatus).CheckFinalizers(),
		Defaults: defaults.Of(defaultStatefulSet),
		Warnings: validate.Warn(warningsOfStatefulSet),
		Columns:  statefulSetColumns,
		Spec:     registry.SpecOf(func(o *appsv1.StatefulSet) *appsv1.StatefulSetSpec { return &o.Spec }),
		Status:   registry.StatusOf(func(o *appsv1.StatefulSet) *appsv1.StatefulSetStatus { return &o.Status }), StatusChangesMetadata: true,
		WarnOnUpdate: registry.NewGeneration,
		PodSpec:      registry.PodTemplate(func(o *appsv1.StatefulSet) *corev1.PodTemplateSpec { return &o.Spec.Template }),
		Scale: registry.ScaleOf(func(o *appsv1.StatefulSet) (**int32, int32, *metav1.LabelSelector) {
			return &o.Spec.Replicas, o.Status.Replicas, o.Spec.Selector
		}),
	}
}

func statefulSetColumns() columns.Printer {
	return columns.Show(func(s *appsv1.StatefulSet, now time.Time) []any {
		names, images := columns.ContainersOf(&s.Spec.Template.Spec)
		return []any{s.Name, fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, columns.Replicas(s.Spec.Replicas)), columns.AgeOf(s, now), names, images}
	}, columns.Name(), columns.Text("Ready", "Number of the pod with ready state"), columns.Age(), columns.Wide(columns.ContainerNames()), columns.Wide(columns.ContainerImages()))
}

func defaultStatefulSet(s *appsv1.StatefulSet) {
	spec := &s.Spec
	defaults.Point(&spec.Replicas, 1)
	defaults.Point(&spec.RevisionHistoryLimit, defaults.RevisionsKept)
	defaults.Set(&spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	strategy := &spec.UpdateStrategy
	if strategy.Type == "" {
		strategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		defaults.Point(&strategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if strategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && strategy.RollingUpdate != nil {
		defaults.Point(&strategy.RollingUpdate.Partition, 0)
		defaults.Point(&strategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
	}
	defaults.Point(&spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	defaults.Set(&spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	defaults.Set(&spec.PersistentVolumeClaimRetentionPolicy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	defaults.PodSpec(&spec.Template.Spec)
	for i := range spec.VolumeClaimTemplates {
		claimTemplate(&spec.VolumeClaimTemplates[i])
	}
}

// claimTemplate sets the kind of an embedded claim, as kube-apiserver has done since before 1.17: clients compare with it
// (kubernetes/kubernetes#87583).
func claimTemplate(c *corev1.PersistentVolumeClaim) {
	c.APIVersion, c.Kind = defaults.ClaimGroup, defaults.ClaimKind
	defaults.Set(&c.Status.Phase, corev1.ClaimPending)
	defaults.Point(&c.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	defaults.Milli(c.Spec.Resources.Limits)
	defaults.Milli(c.Spec.Resources.Requests)
}

func warningsOfStatefulSet(o *appsv1.StatefulSet) []string {
	warnings := validate.PodWarnings(&o.Spec.Template.Spec, &o.Spec.Template.ObjectMeta, field.NewPath("spec", "template"))
	if o.Spec.RevisionHistoryLimit != nil && *o.Spec.RevisionHistoryLimit < 0 {
		warnings = append(warnings, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
	}
	return warnings
}

func validateStatefulSet(s *appsv1.StatefulSet) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validate.ObjectMeta(&s.ObjectMeta, validate.Namespaced, validation.NameIsDNSLabel)
	errs = append(errs, statefulSetSpec(&s.Spec, spec)...)
	errs = append(errs, statefulTemplate(&s.Spec, spec)...)
	if s.Spec.ServiceName != "" {
		errs = append(errs, validate.DnsLabel(s.Spec.ServiceName, spec.Child("serviceName"))...)
	}
	for i := range s.Spec.VolumeClaimTemplates {
		errs = append(errs, validate.ClaimSpec(&s.Spec.VolumeClaimTemplates[i].Spec, spec.Child("volumeClaimTemplates").Index(i).Child("spec"))...)
	}
	return errs
}

// validateStatefulSetUpdate does not repeat the checks of immutable fields, and skips a template that was invalid before, so
// that a set from an older release remains scalable.
func validateStatefulSetUpdate(s, old *appsv1.StatefulSet) field.ErrorList {
	spec := field.NewPath("spec")
	errs := statefulSetSpec(&s.Spec, spec)
	if before := append(statefulSetSpec(&old.Spec, nil), statefulTemplate(&old.Spec, nil)...); len(before) == 0 {
		errs = append(errs, statefulTemplate(&s.Spec, spec)...)
	}
	errs = append(errs, validate.Immutable(s.Spec.Selector, old.Spec.Selector, spec.Child("selector"))...)
	errs = append(errs, validate.Immutable(s.Spec.VolumeClaimTemplates, old.Spec.VolumeClaimTemplates, spec.Child("volumeClaimTemplates"))...)
	errs = append(errs, validate.Immutable(s.Spec.ServiceName, old.Spec.ServiceName, spec.Child("serviceName"))...)
	return append(errs, validate.Immutable(s.Spec.PodManagementPolicy, old.Spec.PodManagementPolicy, spec.Child("podManagementPolicy"))...)
}

func statefulSetSpec(s *appsv1.StatefulSetSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch at := path.Child("podManagementPolicy"); s.PodManagementPolicy {
	case appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement:
	case "":
		errs = append(errs, field.Required(at, ""))
	default:
		errs = append(errs, field.Invalid(at, s.PodManagementPolicy, "must be 'OrderedReady' or 'Parallel'"))
	}
	errs = append(errs, statefulStrategy(&s.UpdateStrategy, path.Child("updateStrategy"))...)
	if p := s.PersistentVolumeClaimRetentionPolicy; p != nil {
		at := path.Child("persistentVolumeClaimRetentionPolicy")
		keep, remove := appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType
		errs = append(errs, validate.OneOf(p.WhenDeleted, at.Child("whenDeleted"), keep, remove)...)
		errs = append(errs, validate.OneOf(p.WhenScaled, at.Child("whenScaled"), keep, remove)...)
	}
	errs = append(errs, validate.RequiredCount(s.Replicas, path.Child("replicas"))...)
	errs = append(errs, validate.NonNegative(path, validate.NamedNumbers{"minReadySeconds": int64(s.MinReadySeconds)})...)
	if s.Ordinals != nil {
		errs = append(errs, validate.NonNegative(path, validate.NamedNumbers{"ordinals.start": int64(s.Ordinals.Start)})...)
	}
	errs = append(errs, requiredSelector(s.Selector, path.Child("selector"), "empty selector is invalid for statefulset")...)
	if parsed, err := metav1.LabelSelectorAsSelector(s.Selector); err != nil {
		errs = append(errs, field.Invalid(path.Child("selector"), s.Selector, ""))
	} else if !parsed.Empty() {
		errs = append(errs, validate.LabelsMatch(&s.Template, parsed, path.Child("template"))...)
	}
	return append(errs, validate.RestartAlways(&s.Template, path.Child("template"), "StatefulSet")...)
}

// statefulTemplate ignores the fields that the controller overwrites with the identity of each pod. Containers may mount the
// claims that each pod will get.
func statefulTemplate(s *appsv1.StatefulSetSpec, path *field.Path) field.ErrorList {
	made := s.Template
	made.Spec.Subdomain, made.Spec.Hostname = "", ""
	made.Spec.Volumes = nil
	claimed := map[string]bool{}
	for i := range s.VolumeClaimTemplates {
		name := s.VolumeClaimTemplates[i].Name
		claimed[name] = true
		made.Spec.Volumes = append(made.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}})
	}
	others := slices.Clone(s.Template.Spec.Volumes)
	made.Spec.Volumes = append(made.Spec.Volumes, slices.DeleteFunc(others, func(v corev1.Volume) bool { return claimed[v.Name] })...)
	return validate.Template(&made, path.Child("template"))
}

func statefulStrategy(s *appsv1.StatefulSetUpdateStrategy, path *field.Path) field.ErrorList {
	rolling := path.Child("rollingUpdate")
	switch s.Type {
	case appsv1.OnDeleteStatefulSetStrategyType:
		if s.RollingUpdate != nil {
			return field.ErrorList{field.Invalid(rolling, s.RollingUpdate, "only allowed for updateStrategy 'RollingUpdate'")}
		}
	case appsv1.RollingUpdateStatefulSetStrategyType:
		if s.RollingUpdate != nil {
			return rollingStatefulSet(s.RollingUpdate, rolling)
		}
	case "":
		return field.ErrorList{field.Required(path, "")}
	default:
		return field.ErrorList{field.Invalid(path, s, "must be 'RollingUpdate' or 'OnDelete'")}
	}
	return nil
}

func rollingStatefulSet(r *appsv1.RollingUpdateStatefulSetStrategy, path *field.Path) field.ErrorList {
	errs := validate.NonNegative(path, validate.NamedNumbers{"partition": validate.OrZero(r.Partition)})
	if r.MaxUnavailable == nil {
		return errs
	}
	at := path.Child("maxUnavailable")
	errs = append(errs, validate.IntOrPercent(r.MaxUnavailable, at)...)
	if validate.IntOrPercentValue(r.MaxUnavailable) == 0 {
		errs = append(errs, field.Invalid(at, *r.MaxUnavailable, "cannot be 0"))
	}
	return append(errs, validate.AtMost100Percent(r.MaxUnavailable, at)...)
}

func validateStatefulSetStatus(set, old *appsv1.StatefulSet) field.ErrorList {
	s, path := &set.Status, field.NewPath("status")
	errs := validate.NonNegative(path, validate.NamedNumbers{
		"replicas": int64(s.Replicas), "readyReplicas": int64(s.ReadyReplicas), "currentReplicas": int64(s.CurrentReplicas),
		"updatedReplicas": int64(s.UpdatedReplicas), "availableReplicas": int64(s.AvailableReplicas),
		"observedGeneration": s.ObservedGeneration, "collisionCount": validate.OrZero(s.CollisionCount),
	})
	errs = append(errs, validate.Bounded(path, s.Replicas, "status.replicas", validate.NamedCounts{
		{"readyReplicas", s.ReadyReplicas}, {"currentReplicas", s.CurrentReplicas}, {"updatedReplicas", s.UpdatedReplicas},
		{"availableReplicas", s.AvailableReplicas},
	})...)
	errs = append(errs, validate.Bounded(path, s.ReadyReplicas, "status.readyReplicas", validate.NamedCounts{{"availableReplicas", s.AvailableReplicas}})...)
	return append(errs, neverLess(s.CollisionCount, old.Status.CollisionCount, path.Child("collisionCount"))...)
}
