package validate

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func AccessModes(modes []corev1.PersistentVolumeAccessMode, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	single, shared := false, false
	for _, mode := range modes {
		bad := OneOf(mode, at, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod)
		errs = append(errs, bad...)
		single = single || mode == corev1.ReadWriteOncePod
		shared = shared || mode != corev1.ReadWriteOncePod && len(bad) == 0
	}
	if single && shared {
		errs = append(errs, field.Forbidden(at, "may not use ReadWriteOncePod with other access modes"))
	}
	return errs
}

func VolumeMode(mode *corev1.PersistentVolumeMode, at *field.Path) field.ErrorList {
	if mode == nil {
		return nil
	}
	return OneOf(*mode, at, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
}

func NotNegative(q resource.Quantity, at *field.Path) field.ErrorList {
	if q.Sign() < 0 {
		return field.ErrorList{field.Invalid(at, q.String(), validation.IsNegativeErrorMsg)}
	}
	return nil
}

func Positive(q resource.Quantity, at *field.Path) field.ErrorList {
	if q.Sign() <= 0 {
		return field.ErrorList{field.Invalid(at, q.String(), "must be greater than zero")}
	}
	return nil
}
