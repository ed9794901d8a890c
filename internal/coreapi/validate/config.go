package validate

import (
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func ValidateServiceAccount(s *corev1.ServiceAccount) field.ErrorList {
	return objectMeta(&s.ObjectMeta, namespaced, validation.ValidateServiceAccountName)
}

func ValidateConfigMap(c *corev1.ConfigMap) field.ErrorList {
	errs := objectMeta(&c.ObjectMeta, namespaced, validation.NameIsDNSSubdomain)
	size := 0
	data, binary := field.NewPath("data"), field.NewPath("binaryData")
	for key, value := range c.Data {
		errs = append(errs, invalid(data.Key(key), key, utilvalidation.IsConfigMapKey(key))...)
		if _, twice := c.BinaryData[key]; twice {
			errs = append(errs, field.Invalid(data.Key(key), key, "duplicate of key present in binaryData"))
		}
		size += len(value)
	}
	for key, value := range c.BinaryData {
		errs = append(errs, invalid(binary.Key(key), key, utilvalidation.IsConfigMapKey(key))...)
		size += len(value)
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(field.NewPath(""), "", corev1.MaxSecretSize))
	}
	return errs
}

func ValidateConfigMapUpdate(c, old *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	if frozen(old.Immutable) {
		errs = stayImmutable(c.Immutable)
		if !apiequality.Semantic.DeepEqual(c.Data, old.Data) {
			errs = append(errs, field.Forbidden(field.NewPath("data"), whenImmutable))
		}
		if !apiequality.Semantic.DeepEqual(c.BinaryData, old.BinaryData) {
			errs = append(errs, field.Forbidden(field.NewPath("binaryData"), whenImmutable))
		}
	}
	return append(errs, ValidateConfigMap(c)...)
}

const whenImmutable = "field is immutable when `immutable` is set"

func frozen(flag *bool) bool { return flag != nil && *flag }

func stayImmutable(flag *bool) field.ErrorList {
	if frozen(flag) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("immutable"), whenImmutable)}
}
