package validate

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func ValidateDeployment(d *appsv1.Deployment) field.ErrorList {
	errs := objectMeta(&d.ObjectMeta, namespaced, validation.NameIsDNSSubdomain)
	return append(errs, deploymentSpec(&d.Spec)...)
}

func ValidateDeploymentUpdate(d, old *appsv1.Deployment) field.ErrorList {
	return append(deploymentSpec(&d.Spec), immutable(d.Spec.Selector, old.Spec.Selector, field.NewPath("spec", "selector"))...)
}

func deploymentSpec(s *appsv1.DeploymentSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := requiredCount(s.Replicas, path.Child("replicas"))
	errs = append(errs, replicated(s.Selector, &s.Template, path)...)
	errs = append(errs, deploymentStrategy(&s.Strategy, path.Child("strategy"))...)
	errs = append(errs, naturals(path, fieldsOf{
		"minReadySeconds": int64(s.MinReadySeconds), "revisionHistoryLimit": given(s.RevisionHistoryLimit),
		"progressDeadlineSeconds": given(s.ProgressDeadlineSeconds),
	})...)
	if d := s.ProgressDeadlineSeconds; d != nil && *d <= s.MinReadySeconds {
		errs = append(errs, field.Invalid(path.Child("progressDeadlineSeconds"), *d, "must be greater than minReadySeconds"))
	}
	return errs
}

// replicated checks a selector and the template of pods that are all alike. Deployments and ReplicaSets share even the
// words: kube-apiserver's for the second are those of the first.
func replicated(s *metav1.LabelSelector, t *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	errs := requiredSelector(s, path.Child("selector"), "empty selector is invalid for deployment")
	parsed, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return append(errs, field.Invalid(path.Child("selector"), s, "invalid label selector"))
	}
	at := path.Child("template")
	if !parsed.Empty() {
		errs = append(errs, selected(t, parsed, at)...)
	}
	errs = append(errs, template(t, at)...)
	return append(errs, forever(t, at, "ReplicaSet")...)
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
	errs := share(unavailable, rolling.Child("maxUnavailable"))
	errs = append(errs, share(surge, rolling.Child("maxSurge"))...)
	if amountOf(unavailable) == 0 && amountOf(surge) == 0 {
		errs = append(errs, field.Invalid(rolling.Child("maxUnavailable"), unavailable, "may not be 0 when `maxSurge` is 0"))
	}
	return append(errs, notAboveAll(unavailable, rolling.Child("maxUnavailable"))...)
}

func ValidateDeploymentStatus(d, old *appsv1.Deployment) field.ErrorList {
	s, path := &d.Status, field.NewPath("status")
	errs := naturals(path, fieldsOf{
		"observedGeneration": s.ObservedGeneration, "replicas": int64(s.Replicas), "updatedReplicas": int64(s.UpdatedReplicas),
		"readyReplicas": int64(s.ReadyReplicas), "availableReplicas": int64(s.AvailableReplicas),
		"unavailableReplicas": int64(s.UnavailableReplicas), "terminatingReplicas": given(s.TerminatingReplicas),
		"collisionCount": given(s.CollisionCount),
	})
	errs = append(errs, bounded(path, s.Replicas, "status.replicas", counts{
		{"updatedReplicas", s.UpdatedReplicas}, {"readyReplicas", s.ReadyReplicas}, {"availableReplicas", s.AvailableReplicas},
	})...)
	errs = append(errs, bounded(path, s.ReadyReplicas, "readyReplicas", counts{{"availableReplicas", s.AvailableReplicas}})...)
	return append(errs, neverLess(s.CollisionCount, old.Status.CollisionCount, path.Child("collisionCount"))...)
}

func ValidateReplicaSet(s *appsv1.ReplicaSet) field.ErrorList {
	errs := objectMeta(&s.ObjectMeta, namespaced, validation.NameIsDNSSubdomain)
	return append(errs, replicaSetSpec(&s.Spec)...)
}

func ValidateReplicaSetUpdate(s, old *appsv1.ReplicaSet) field.ErrorList {
	return append(replicaSetSpec(&s.Spec), immutable(s.Spec.Selector, old.Spec.Selector, field.NewPath("spec", "selector"))...)
}

func replicaSetSpec(s *appsv1.ReplicaSetSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := requiredCount(s.Replicas, path.Child("replicas"))
	errs = append(errs, naturals(path, fieldsOf{"minReadySeconds": int64(s.MinReadySeconds)})...)
	return append(errs, replicated(s.Selector, &s.Template, path)...)
}

func ValidateReplicaSetStatus(r, _ *appsv1.ReplicaSet) field.ErrorList {
	s, path := &r.Status, field.NewPath("status")
	errs := naturals(path, fieldsOf{
		"replicas": int64(s.Replicas), "fullyLabeledReplicas": int64(s.FullyLabeledReplicas), "readyReplicas": int64(s.ReadyReplicas),
		"availableReplicas": int64(s.AvailableReplicas), "observedGeneration": s.ObservedGeneration,
		"terminatingReplicas": given(s.TerminatingReplicas),
	})
	errs = append(errs, bounded(path, s.Replicas, "status.replicas", counts{
		{"fullyLabeledReplicas", s.FullyLabeledReplicas}, {"readyReplicas", s.ReadyReplicas}, {"availableReplicas", s.AvailableReplicas},
	})...)
	return append(errs, bounded(path, s.ReadyReplicas, "readyReplicas", counts{{"availableReplicas", s.AvailableReplicas}})...)
}
