package validate

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func ValidateStatefulSet(s *appsv1.StatefulSet) field.ErrorList {
	spec := field.NewPath("spec")
	errs := objectMeta(&s.ObjectMeta, namespaced, validation.NameIsDNSLabel)
	errs = append(errs, statefulSetSpec(&s.Spec, spec)...)
	errs = append(errs, statefulTemplate(&s.Spec, spec)...)
	if s.Spec.ServiceName != "" {
		errs = append(errs, dnsLabel(s.Spec.ServiceName, spec.Child("serviceName"))...)
	}
	for i := range s.Spec.VolumeClaimTemplates {
		errs = append(errs, claimSpec(&s.Spec.VolumeClaimTemplates[i].Spec, spec.Child("volumeClaimTemplates").Index(i).Child("spec"))...)
	}
	return errs
}

// ValidateStatefulSetUpdate does not look at what is immutable again, nor at a template that was wrong before: a set from an
// older release must stay scalable.
func ValidateStatefulSetUpdate(s, old *appsv1.StatefulSet) field.ErrorList {
	spec := field.NewPath("spec")
	errs := statefulSetSpec(&s.Spec, spec)
	if before := append(statefulSetSpec(&old.Spec, nil), statefulTemplate(&old.Spec, nil)...); len(before) == 0 {
		errs = append(errs, statefulTemplate(&s.Spec, spec)...)
	}
	errs = append(errs, immutable(s.Spec.Selector, old.Spec.Selector, spec.Child("selector"))...)
	errs = append(errs, immutable(s.Spec.VolumeClaimTemplates, old.Spec.VolumeClaimTemplates, spec.Child("volumeClaimTemplates"))...)
	errs = append(errs, immutable(s.Spec.ServiceName, old.Spec.ServiceName, spec.Child("serviceName"))...)
	return append(errs, immutable(s.Spec.PodManagementPolicy, old.Spec.PodManagementPolicy, spec.Child("podManagementPolicy"))...)
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
		errs = append(errs, oneOf(p.WhenDeleted, at.Child("whenDeleted"), keep, remove)...)
		errs = append(errs, oneOf(p.WhenScaled, at.Child("whenScaled"), keep, remove)...)
	}
	errs = append(errs, requiredCount(s.Replicas, path.Child("replicas"))...)
	errs = append(errs, naturals(path, fieldsOf{"minReadySeconds": int64(s.MinReadySeconds)})...)
	if s.Ordinals != nil {
		errs = append(errs, naturals(path, fieldsOf{"ordinals.start": int64(s.Ordinals.Start)})...)
	}
	errs = append(errs, requiredSelector(s.Selector, path.Child("selector"), "empty selector is invalid for statefulset")...)
	if parsed, err := metav1.LabelSelectorAsSelector(s.Selector); err != nil {
		errs = append(errs, field.Invalid(path.Child("selector"), s.Selector, ""))
	} else if !parsed.Empty() {
		errs = append(errs, selected(&s.Template, parsed, path.Child("template"))...)
	}
	return append(errs, forever(&s.Template, path.Child("template"), "StatefulSet")...)
}

// statefulTemplate leaves out what the controller writes over: the names that give each pod its identity. Its containers
// may mount the claims that each pod will get.
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
	return template(&made, path.Child("template"))
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
	errs := naturals(path, fieldsOf{"partition": given(r.Partition)})
	if r.MaxUnavailable == nil {
		return errs
	}
	at := path.Child("maxUnavailable")
	errs = append(errs, share(r.MaxUnavailable, at)...)
	if amountOf(r.MaxUnavailable) == 0 {
		errs = append(errs, field.Invalid(at, *r.MaxUnavailable, "cannot be 0"))
	}
	return append(errs, notAboveAll(r.MaxUnavailable, at)...)
}

func ValidateStatefulSetStatus(set, old *appsv1.StatefulSet) field.ErrorList {
	s, path := &set.Status, field.NewPath("status")
	errs := naturals(path, fieldsOf{
		"replicas": int64(s.Replicas), "readyReplicas": int64(s.ReadyReplicas), "currentReplicas": int64(s.CurrentReplicas),
		"updatedReplicas": int64(s.UpdatedReplicas), "availableReplicas": int64(s.AvailableReplicas),
		"observedGeneration": s.ObservedGeneration, "collisionCount": given(s.CollisionCount),
	})
	errs = append(errs, bounded(path, s.Replicas, "status.replicas", counts{
		{"readyReplicas", s.ReadyReplicas}, {"currentReplicas", s.CurrentReplicas}, {"updatedReplicas", s.UpdatedReplicas},
		{"availableReplicas", s.AvailableReplicas},
	})...)
	errs = append(errs, bounded(path, s.ReadyReplicas, "status.readyReplicas", counts{{"availableReplicas", s.AvailableReplicas}})...)
	return append(errs, neverLess(s.CollisionCount, old.Status.CollisionCount, path.Child("collisionCount"))...)
}
