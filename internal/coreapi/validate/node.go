package validate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ResourceQuantity allows no debts, and no halves of what comes in pieces: extended resources such as devices.
func ResourceQuantity(name corev1.ResourceName, q resource.Quantity, path *field.Path) field.ErrorList {
	errs := Qualified(string(name), path)
	if q.Sign() < 0 {
		errs = append(errs, field.Invalid(path, q.String(), validation.IsNegativeErrorMsg))
	}
	extended := strings.Contains(string(name), "/") && !strings.Contains(string(name), "kubernetes.io/")
	if extended && q.MilliValue()%1000 != 0 {
		errs = append(errs, field.Invalid(path, q.String(), "must be an integer"))
	}
	return errs
}
