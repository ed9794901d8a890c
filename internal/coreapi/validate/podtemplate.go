package validate

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func ValidatePodTemplate(t *corev1.PodTemplate) field.ErrorList {
	errs := objectMeta(&t.ObjectMeta, namespaced, validation.NameIsDNSSubdomain)
	return append(errs, template(&t.Template, field.NewPath("template"))...)
}

func ValidatePodTemplateUpdate(t, _ *corev1.PodTemplate) field.ErrorList {
	return template(&t.Template, field.NewPath("template"))
}

// template checks what pods are made from. Its name and namespace are not read: the pods get others.
func template(t *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabels(t.Labels, path.Child("labels"))
	errs = append(errs, validation.ValidateAnnotations(t.Annotations, path.Child("annotations"))...)
	errs = append(errs, podAnnotations(t.Annotations, &t.Spec, path.Child("annotations"))...)
	errs = append(errs, podSpec(&t.Spec, path.Child("spec"))...)
	if len(t.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(path.Child("spec", "ephemeralContainers"), "ephemeral containers not allowed in pod template"))
	}
	return errs
}

// forever is for templates of pods that a controller replaces when they end: kind is what people call it.
func forever(t *corev1.PodTemplateSpec, path *field.Path, kind string) field.ErrorList {
	var errs field.ErrorList
	if t.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(path.Child("spec", "restartPolicy"), t.Spec.RestartPolicy,
			[]corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if t.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(path.Child("spec", "activeDeadlineSeconds"),
			"activeDeadlineSeconds in "+kind+" is not Supported"))
	}
	return errs
}

// requiredSelector refuses a controller that would adopt every pod of its namespace.
func requiredSelector(s *metav1.LabelSelector, path *field.Path, empty string) field.ErrorList {
	if s == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := selector(s, path)
	if len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		errs = append(errs, field.Invalid(path, s, empty))
	}
	return errs
}

// selected refuses a template whose pods their controller would not find again: it would make them without end.
func selected(t *corev1.PodTemplateSpec, s labels.Selector, path *field.Path) field.ErrorList {
	if s.Matches(labels.Set(t.Labels)) {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("metadata", "labels"), t.Labels, "`selector` does not match template `labels`")}
}

func ValidateReplicationController(c *corev1.ReplicationController) field.ErrorList {
	errs := objectMeta(&c.ObjectMeta, namespaced, validation.NameIsDNSSubdomain)
	return append(errs, replicationControllerSpec(&c.Spec)...)
}

func ValidateReplicationControllerUpdate(c, _ *corev1.ReplicationController) field.ErrorList {
	return replicationControllerSpec(&c.Spec)
}

func replicationControllerSpec(s *corev1.ReplicationControllerSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := naturals(path, fieldsOf{"minReadySeconds": int64(s.MinReadySeconds)})
	if len(s.Selector) == 0 {
		errs = append(errs, field.Required(path.Child("selector"), ""))
	}
	errs = append(errs, requiredCount(s.Replicas, path.Child("replicas"))...)
	at := path.Child("template")
	if s.Template == nil {
		return append(errs, field.Required(at, ""))
	}
	if len(s.Selector) > 0 {
		errs = append(errs, selected(s.Template, labels.Set(s.Selector).AsSelector(), at)...)
	}
	errs = append(errs, template(s.Template, at)...)
	return append(errs, forever(s.Template, at, "ReplicationController")...)
}

func ValidateReplicationControllerStatus(c, _ *corev1.ReplicationController) field.ErrorList {
	s, path := &c.Status, field.NewPath("status")
	errs := naturals(path, fieldsOf{
		"replicas": int64(s.Replicas), "fullyLabeledReplicas": int64(s.FullyLabeledReplicas), "readyReplicas": int64(s.ReadyReplicas),
		"availableReplicas": int64(s.AvailableReplicas), "observedGeneration": s.ObservedGeneration,
	})
	errs = append(errs, bounded(path, s.Replicas, "status.replicas", counts{
		{"fullyLabeledReplicas", s.FullyLabeledReplicas}, {"readyReplicas", s.ReadyReplicas}, {"availableReplicas", s.AvailableReplicas},
	})...)
	return append(errs, bounded(path, s.ReadyReplicas, "readyReplicas", counts{{"availableReplicas", s.AvailableReplicas}})...)
}
