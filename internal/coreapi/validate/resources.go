package validate

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// containerResources refuses a container that asks for more than it may have.
func containerResources(r *corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	limits, requests := path.Child("limits"), path.Child("requests")
	for name, quantity := range r.Limits {
		errs = append(errs, resourceQuantity(name, quantity, limits.Key(string(name)))...)
	}
	for name, quantity := range r.Requests {
		errs = append(errs, resourceQuantity(name, quantity, requests.Key(string(name)))...)
		if limit, limited := r.Limits[name]; limited && quantity.Cmp(limit) > 0 {
			errs = append(errs, field.Invalid(requests, quantity.String(),
				fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		}
	}
	return errs
}
