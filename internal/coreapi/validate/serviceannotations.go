package validate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// serviceAnnotations checks the annotations that were there before there were fields.
func serviceAnnotations(s, old *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("metadata", "annotations")
	mode, moded := s.Annotations[corev1.AnnotationTopologyMode]
	hints, hinted := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	if moded && hinted && mode != hints {
		errs = append(errs, field.Invalid(path.Key(corev1.AnnotationTopologyMode), mode,
			"must match annotations["+corev1.DeprecatedAnnotationTopologyAwareHints+"] when both are specified"))
	}
	const ranges = corev1.AnnotationLoadBalancerSourceRangesKey
	value, set := s.Annotations[ranges]
	if !set || len(s.Spec.LoadBalancerSourceRanges) > 0 {
		return errs
	}
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		errs = append(errs, field.Forbidden(path.Key(ranges), "may only be used when `type` is 'LoadBalancer'"))
	}
	if value = strings.TrimSpace(value); value == "" || old.Annotations[ranges] == s.Annotations[ranges] {
		return errs
	}
	for cidr := range strings.SplitSeq(value, ",") {
		errs = append(errs, utilvalidation.IsValidCIDRForLegacyField(path.Key(ranges), strings.TrimSpace(cidr), true, nil)...)
	}
	return errs
}
