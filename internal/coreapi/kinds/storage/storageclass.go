package storage

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func storageClassResource() registry.Resource {
	return registry.Resource{
		Name: "storageclasses", Singular: "storageclass", ShortNames: []string{"sc"}, ClusterScoped: true,
		Object: &storagev1.StorageClass{}, List: &storagev1.StorageClassList{}, ReturnDeletedObject: true, WatchCache: true, AllowUnconditionalUpdate: true,
		Samples: []string{
			"metadata: {name: fast}\n" +
				"provisioner: Example.com/disk\n" +
				"allowedTopologies: [{matchLabelExpressions: [{key: zone, values: [a]}]}]",
		},
		Rules:    validate.OnUpdate(validateStorageClass, validateStorageClassUpdate),
		Defaults: defaults.Of(defaultStorageClass),
		Warnings: validate.Warn(storageClassWarnings),
		Columns:  storageClassColumns,
	}
}

// storageClassColumns marks the default class in a list: the newest one of several with the annotation.
func storageClassColumns() columns.Printer {
	doc := storagev1.StorageClass{}.SwaggerDoc()
	cells := func(c *storagev1.StorageClass, now time.Time, mark string) []any {
		policy, binding := corev1.PersistentVolumeReclaimDelete, storagev1.VolumeBindingImmediate
		if c.ReclaimPolicy != nil {
			policy = *c.ReclaimPolicy
		}
		if c.VolumeBindingMode != nil {
			binding = *c.VolumeBindingMode
		}
		return []any{c.Name + mark, c.Provisioner, string(policy), string(binding), c.AllowVolumeExpansion != nil && *c.AllowVolumeExpansion, columns.AgeOf(c, now)}
	}
	p := columns.Show(func(c *storagev1.StorageClass, now time.Time) []any { return cells(c, now, "") },
		columns.Name(), columns.Text("Provisioner", doc["provisioner"]), columns.Text("ReclaimPolicy", doc["reclaimPolicy"]),
		columns.Text("VolumeBindingMode", doc["volumeBindingMode"]), columns.Text("AllowVolumeExpansion", doc["allowVolumeExpansion"]), columns.Age())
	p.Among = func(items []runtime.Object) columns.Printer {
		chosen := defaultClass(items)
		return columns.Show(func(c *storagev1.StorageClass, now time.Time) []any {
			if c.Name == chosen {
				return cells(c, now, " (default)")
			}
			return cells(c, now, "")
		}, p.Columns...)
	}
	return p
}

// defaultClass returns the class for claims without a class.
func defaultClass(items []runtime.Object) string {
	var chosen *storagev1.StorageClass
	for _, item := range items {
		class, ok := item.(*storagev1.StorageClass)
		if !ok || class.Annotations["storageclass.kubernetes.io/is-default-class"] != "true" &&
			class.Annotations["storageclass.beta.kubernetes.io/is-default-class"] != "true" {
			continue
		}
		if chosen == nil || chosen.CreationTimestamp.Before(&class.CreationTimestamp) ||
			chosen.CreationTimestamp.Equal(&class.CreationTimestamp) && class.Name < chosen.Name {
			chosen = class
		}
	}
	if chosen == nil {
		return ""
	}
	return chosen.Name
}

func defaultStorageClass(c *storagev1.StorageClass) {
	defaults.Point(&c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
	defaults.Point(&c.VolumeBindingMode, storagev1.VolumeBindingImmediate)
}

func validateStorageClass(c *storagev1.StorageClass) field.ErrorList {
	errs := validate.ObjectMeta(&c.ObjectMeta, validate.ClusterScoped, validation.NameIsDNSSubdomain)
	errs = append(errs, provisioner(c.Provisioner, field.NewPath("provisioner"))...)
	errs = append(errs, parameters(c.Parameters, field.NewPath("parameters"))...)
	if c.ReclaimPolicy != nil && *c.ReclaimPolicy != "" {
		errs = append(errs, validate.OneOf(*c.ReclaimPolicy, field.NewPath("reclaimPolicy"), corev1.PersistentVolumeReclaimDelete,
			corev1.PersistentVolumeReclaimRetain)...)
	}
	if c.VolumeBindingMode == nil {
		errs = append(errs, field.Required(field.NewPath("volumeBindingMode"), ""))
	} else {
		errs = append(errs, validate.OneOf(*c.VolumeBindingMode, field.NewPath("volumeBindingMode"), storagev1.VolumeBindingImmediate,
			storagev1.VolumeBindingWaitForFirstConsumer)...)
	}
	return append(errs, topologies(c.AllowedTopologies, field.NewPath("allowedTopologies"))...)
}

// validateStorageClassUpdate makes the fields immutable that existing volumes were created with.
func validateStorageClassUpdate(c, old *storagev1.StorageClass) field.ErrorList {
	errs := validateStorageClass(c)
	errs = append(errs, validate.Immutable(c.Parameters, old.Parameters, field.NewPath("parameters"))...)
	errs = append(errs, validate.Immutable(c.Provisioner, old.Provisioner, field.NewPath("provisioner"))...)
	errs = append(errs, validate.Immutable(c.ReclaimPolicy, old.ReclaimPolicy, field.NewPath("reclaimPolicy"))...)
	return append(errs, validate.Immutable(c.VolumeBindingMode, old.VolumeBindingMode, field.NewPath("volumeBindingMode"))...)
}

func topologies(terms []corev1.TopologySelectorTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := make([]map[string]sets.Set[string], len(terms)) // nil for the following terms, which an empty term duplicates
	for i, term := range terms {
		at := path.Index(i).Child("matchLabelExpressions")
		said := map[string]sets.Set[string]{}
		for j, requirement := range term.MatchLabelExpressions {
			errs = append(errs, topologyRequirement(&requirement, at.Index(j))...)
			if _, twice := said[requirement.Key]; twice {
				errs = append(errs, field.Duplicate(at.Index(j).Child("key"), requirement.Key))
			}
			said[requirement.Key] = sets.New(requirement.Values...)
		}
		for _, before := range seen {
			if apiequality.Semantic.DeepEqual(said, before) {
				errs = append(errs, field.Duplicate(at, ""))
			}
		}
		seen[i] = said
	}
	return errs
}

func topologyRequirement(r *corev1.TopologySelectorLabelRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(r.Values) == 0 {
		errs = append(errs, field.Required(path.Child("values"), ""))
	}
	seen := sets.New[string]()
	for i, value := range r.Values {
		if seen.Has(value) {
			errs = append(errs, field.Duplicate(path.Child("values").Index(i), value))
		}
		seen.Insert(value)
	}
	return append(errs, metav1validation.ValidateLabelName(r.Key, path.Child("key"))...)
}

func storageClassWarnings(c *storagev1.StorageClass) []string {
	var warnings []string
	for i, term := range c.AllowedTopologies {
		for j, expression := range term.MatchLabelExpressions {
			if message, old := validate.OldNodeLabels[expression.Key]; old {
				at := field.NewPath("allowedTopologies").Index(i).Child("matchLabelExpressions").Index(j).Child("key")
				warnings = append(warnings, at.String()+": "+message)
			}
		}
	}
	return warnings
}
