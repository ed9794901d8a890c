package core

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func configMapResource() registry.Resource {
	return registry.Resource{
		Name: "configmaps", Singular: "configmap", ShortNames: []string{"cm"},
		Object: &corev1.ConfigMap{}, List: &corev1.ConfigMapList{}, WatchCache: true, AllowUnconditionalUpdate: true,
		Samples: []string{
			"metadata: {name: a, namespace: ns}\n" +
				"data: {k: v}\n" +
				"binaryData: {b: AAEC}",
		},
		Rules:   validate.OnUpdate(validateConfigMap, validateConfigMapUpdate),
		Columns: configMapColumns,
	}
}

func configMapColumns() columns.Printer {
	return columns.Show(func(c *corev1.ConfigMap, now time.Time) []any {
		return []any{c.Name, int64(len(c.Data) + len(c.BinaryData)), columns.AgeOf(c, now)}
	}, columns.Name(), columns.Text("Data", corev1.ConfigMap{}.SwaggerDoc()["data"]), columns.Age())
}

func validateConfigMap(c *corev1.ConfigMap) field.ErrorList {
	errs := validate.ObjectMeta(&c.ObjectMeta, validate.Namespaced, validation.NameIsDNSSubdomain)
	size := 0
	data, binary := field.NewPath("data"), field.NewPath("binaryData")
	for key, value := range c.Data {
		errs = append(errs, validate.Invalid(data.Key(key), key, utilvalidation.IsConfigMapKey(key))...)
		if _, twice := c.BinaryData[key]; twice {
			errs = append(errs, field.Invalid(data.Key(key), key, "duplicate of key present in binaryData"))
		}
		size += len(value)
	}
	for key, value := range c.BinaryData {
		errs = append(errs, validate.Invalid(binary.Key(key), key, utilvalidation.IsConfigMapKey(key))...)
		size += len(value)
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(field.NewPath(""), "", corev1.MaxSecretSize))
	}
	return errs
}

func validateConfigMapUpdate(c, old *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	if validate.IsTrue(old.Immutable) {
		errs = stayImmutable(c.Immutable)
		if !apiequality.Semantic.DeepEqual(c.Data, old.Data) {
			errs = append(errs, field.Forbidden(field.NewPath("data"), whenImmutable))
		}
		if !apiequality.Semantic.DeepEqual(c.BinaryData, old.BinaryData) {
			errs = append(errs, field.Forbidden(field.NewPath("binaryData"), whenImmutable))
		}
	}
	return append(errs, validateConfigMap(c)...)
}

const whenImmutable = "field is immutable when `immutable` is set"

func stayImmutable(flag *bool) field.ErrorList {
	if validate.IsTrue(flag) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("immutable"), whenImmutable)}
}
