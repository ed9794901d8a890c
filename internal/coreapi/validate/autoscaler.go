package validate

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Scale returns what is wrong with a wish to scale. Its other metadata is not written anywhere.
func Scale(s *autoscalingv1.Scale) field.ErrorList {
	errs := metav1validation.ValidateManagedFields(s.ManagedFields, field.NewPath("metadata", "managedFields"))
	return append(errs, validation.ValidateNonnegativeField(int64(s.Spec.Replicas), field.NewPath("spec", "replicas"))...)
}
