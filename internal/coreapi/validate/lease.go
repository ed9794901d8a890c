package validate

import (
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func ValidateLease(l *coordinationv1.Lease) field.ErrorList {
	errs := plainMeta(&l.ObjectMeta, namespaced, validation.NameIsDNSSubdomain)
	spec := field.NewPath("spec")
	if d := l.Spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		errs = append(errs, field.Invalid(spec.Child("leaseDurationSeconds"), *d, "must be greater than 0"))
	}
	if n := l.Spec.LeaseTransitions; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(spec.Child("leaseTransitions"), *n, "must be greater than or equal to 0"))
	}
	var strategy coordinationv1.CoordinatedLeaseStrategy
	if l.Spec.Strategy != nil {
		strategy = *l.Spec.Strategy
		errs = append(errs, leaseStrategy(strategy, spec.Child("strategy"))...)
	}
	if holder := l.Spec.PreferredHolder; holder != nil && *holder != "" && strategy == "" {
		errs = append(errs, field.Forbidden(spec.Child("preferredHolder"), "may only be specified if `strategy` is defined"))
	}
	return errs
}

// leaseStrategy takes Kubernetes' own strategies by their bare names and others by qualified ones.
func leaseStrategy(s coordinationv1.CoordinatedLeaseStrategy, path *field.Path) field.ErrorList {
	if strings.Contains(string(s), "/") {
		return qualified(string(s), path)
	}
	return oneOf(s, path, coordinationv1.OldestEmulationVersion)
}
