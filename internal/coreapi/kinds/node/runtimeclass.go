package node

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func runtimeClassResource() registry.Resource {
	return registry.Resource{
		Name: "runtimeclasses", Singular: "runtimeclass", ClusterScoped: true,
		Object: &nodev1.RuntimeClass{}, List: &nodev1.RuntimeClassList{}, WatchCache: true, AllowCreateOnUpdate: true,
		Samples: []string{
			"metadata: {name: sandbox}\n" +
				"handler: runsc\n" +
				"overhead: {podFixed: {cpu: 250m}}\n" +
				"scheduling: {tolerations: [{key: sandbox, operator: Exists}]}",
		},
		Rules:    validate.OnUpdate(validateRuntimeClass, validateRuntimeClassUpdate),
		Defaults: defaults.Of(defaultRuntimeClass),
		Warnings: validate.Warn(runtimeClassWarnings),
		Columns:  runtimeClassColumns,
	}
}

func runtimeClassColumns() columns.Printer {
	return columns.Show(func(c *nodev1.RuntimeClass, now time.Time) []any {
		return []any{c.Name, c.Handler, columns.AgeOf(c, now)}
	}, columns.Name(), columns.Text("Handler", nodev1.RuntimeClass{}.SwaggerDoc()["handler"]), columns.Age())
}

func defaultRuntimeClass(c *nodev1.RuntimeClass) {
	if c.Overhead != nil {
		defaults.Milli(c.Overhead.PodFixed)
	}
}

func validateRuntimeClass(c *nodev1.RuntimeClass) field.ErrorList {
	errs := validate.PlainMeta(&c.ObjectMeta, validate.ClusterScoped, validation.NameIsDNSSubdomain)
	if c.Handler == "" {
		errs = append(errs, field.Required(field.NewPath("handler"), ""))
	} else {
		errs = append(errs, validate.DnsLabel(c.Handler, field.NewPath("handler"))...)
	}
	if c.Overhead != nil {
		errs = append(errs, overhead(c.Overhead.PodFixed, field.NewPath("overhead", "limits"))...)
	}
	if c.Scheduling == nil {
		return errs
	}
	path := field.NewPath("scheduling")
	errs = append(errs, metav1validation.ValidateLabels(c.Scheduling.NodeSelector, path.Child("nodeSelector"))...)
	errs = append(errs, validate.Tolerations(c.Scheduling.Tolerations, path.Child("tolerations"))...)
	seen := sets.New[corev1.Toleration]()
	for i, t := range c.Scheduling.Tolerations {
		key := corev1.Toleration{Key: t.Key, Operator: t.Operator, Value: t.Value, Effect: t.Effect}
		if seen.Has(key) {
			errs = append(errs, field.Duplicate(path.Child("tolerations").Index(i), t))
		}
		seen.Insert(key)
	}
	return errs
}

// overhead is checked like the limits of a container, which is also the name in kube-apiserver's errors.
func overhead(list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		at, quantity := path.Key(string(name)), list[name]
		errs = append(errs, validate.LimitedResource(corev1.LimitTypeContainer, name, at)...)
		errs = append(errs, validate.ResourceQuantity(name, quantity, at)...)
	}
	return errs
}

func validateRuntimeClassUpdate(c, old *nodev1.RuntimeClass) field.ErrorList {
	return append(validateRuntimeClass(c), validate.Immutable(c.Handler, old.Handler, field.NewPath("handler"))...)
}

func runtimeClassWarnings(c *nodev1.RuntimeClass) []string {
	if c.Scheduling == nil {
		return nil
	}
	var warnings []string
	for _, key := range slices.Sorted(maps.Keys(c.Scheduling.NodeSelector)) {
		if message, old := validate.OldNodeLabels[key]; old {
			warnings = append(warnings, "scheduling.nodeSelector: "+message)
		}
	}
	return warnings
}
