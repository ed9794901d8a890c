package resource

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/operation"
	apivalidate "k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func deviceClassResource() registry.Resource {
	return registry.Resource{
		Name: "deviceclasses", Singular: "deviceclass", ClusterScoped: true,
		Object: &resourcev1.DeviceClass{}, List: &resourcev1.DeviceClassList{},
		WatchCache: true, AllowUnconditionalUpdate: true, ReturnDeletedObject: true, Generations: true,
		Samples: []string{
			"metadata: {name: gpus}\n" +
				"spec:\n" +
				"  selectors: [{cel: {expression: 'device.driver == \"gpu.example.com\"'}}]\n" +
				"  config: [{opaque: {driver: gpu.example.com, parameters: {shared: true}}}]\n",
		},
		Rules: rulesOf(Validate_DeviceClass, handwritten[*resourcev1.DeviceClass]{
			create: func(c *resourcev1.DeviceClass) field.ErrorList { return deviceClass(c, nil) },
			update: deviceClass,
		}),
		Columns: nameAndAge[*resourcev1.DeviceClass],
		Spec:    registry.SpecOf(func(c *resourcev1.DeviceClass) *resourcev1.DeviceClassSpec { return &c.Spec }),
	}
}

// nameAndAge returns the columns of kinds without further columns.
func nameAndAge[T interface {
	runtime.Object
	metav1.Object
}]() columns.Printer {
	return columns.Show(func(o T, now time.Time) []any {
		return []any{o.GetName(), columns.AgeOf(o, now)}
	}, columns.Name(), columns.Age())
}

// deviceClass checks a class. old is nil on create.
func deviceClass(c, old *resourcev1.DeviceClass) field.ErrorList {
	errs := validation.ValidateObjectMetaWithOpts(&c.ObjectMeta, validate.ClusterScoped, func(path *field.Path, name string) field.ErrorList {
		return covered(apivalidate.LongName(context.Background(), operation.Operation{}, path, &name, nil))
	}, field.NewPath("metadata"))
	errs = append(errs, validate.EachValue(c.Finalizers, field.NewPath("metadata", "finalizers"), validate.StandardFinalizer)...)
	spec := field.NewPath("spec")
	// Unchanged expressions are not compiled again, and the size of unchanged parameters is not checked again.
	known := old != nil && apiequality.Semantic.DeepEqual(c.Spec.Selectors, old.Spec.Selectors)
	errs = append(errs, checkEach(c.Spec.Selectors, resourcev1.DeviceSelectorsMaxSize, byTags, spec.Child("selectors"),
		func(s resourcev1.DeviceSelector, at *field.Path) field.ErrorList { return selector(s, known, at) })...)
	known = old != nil && apiequality.Semantic.DeepEqual(c.Spec.Config, old.Spec.Config)
	errs = append(errs, checkEach(c.Spec.Config, resourcev1.DeviceConfigMaxSize, byTags, spec.Child("config"),
		func(config resourcev1.DeviceClassConfiguration, at *field.Path) field.ErrorList {
			return configuration(config.DeviceConfiguration, known, at)
		})...)
	if name := c.Spec.ExtendedResourceName; name != nil && !isExtendedResource(*name) {
		errs = append(errs, field.Invalid(spec.Child("extendedResourceName"), *name, "must be a valid extended resource name").
			WithOrigin(originExtended).MarkCoveredByDeclarative())
	}
	return errs
}

// isExtendedResource reports whether name is outside of Kubernetes' domain and valid in a quota.
func isExtendedResource(name string) bool {
	if !strings.Contains(name, "/") || strings.Contains(name, corev1.ResourceDefaultNamespacePrefix) ||
		strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) {
		return false
	}
	return len(utilvalidation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+name)) == 0
}
