package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

// nameLimitRange generates a name for a LimitRange without one, as kube-apiserver does.
func nameLimitRange(obj runtime.Object) {
	if limits := obj.(*corev1.LimitRange); limits.Name == "" {
		limits.Name = string(uuid.NewUUID())
	}
}

func limitRangeResource() registry.Resource {
	return registry.Resource{
		Name: "limitranges", Singular: "limitrange", ShortNames: []string{"limits"},
		Object: &corev1.LimitRange{}, List: &corev1.LimitRangeList{}, AllowCreateOnUpdate: true, AllowUnconditionalUpdate: true,
		Samples: []string{
			"metadata: {name: a, namespace: ns}\n" +
				"spec: {limits: []}",
			"metadata: {name: b, namespace: ns}\n" +
				"spec: {limits: [{type: Container, max: {cpu: '2'}, min: {cpu: 100m}}, {type: PersistentVolumeClaim, max: {storage: 1Gi}}, {type: Pod, max: {memory: 1Gi}}]}",
		},
		Rules:         validate.SameOnUpdate(validateLimitRange),
		Defaults:      defaults.Of(defaultLimitRange),
		PrepareCreate: nameLimitRange,
	}
}

// defaultLimitRange sets the defaults of containers that follow from the bounds. The default limit is max. The default request
// is the default limit, or else min.
func defaultLimitRange(l *corev1.LimitRange) {
	for i := range l.Spec.Limits {
		item := &l.Spec.Limits[i]
		for _, list := range []corev1.ResourceList{item.Max, item.Min, item.Default, item.DefaultRequest, item.MaxLimitRequestRatio} {
			defaults.Milli(list)
		}
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		complete(&item.Default, item.Max)
		complete(&item.DefaultRequest, item.Default)
		complete(&item.DefaultRequest, item.Min)
	}
}

// complete adds the entries of from that list lacks.
func complete(list *corev1.ResourceList, from corev1.ResourceList) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	for name, quantity := range from {
		if _, said := (*list)[name]; !said {
			(*list)[name] = quantity.DeepCopy()
		}
	}
}

func validateLimitRange(l *corev1.LimitRange) field.ErrorList {
	errs := validate.ObjectMeta(&l.ObjectMeta, validate.Namespaced, validation.NameIsDNSSubdomain)
	seen := sets.New[corev1.LimitType]()
	for i := range l.Spec.Limits {
		item, at := &l.Spec.Limits[i], field.NewPath("spec", "limits").Index(i)
		errs = append(errs, limitType(item.Type, at.Child("type"))...)
		if seen.Has(item.Type) {
			errs = append(errs, field.Duplicate(at.Child("type"), item.Type))
		}
		seen.Insert(item.Type)
		errs = append(errs, limitNames(item, at)...)
		errs = append(errs, limitOrder(item, at)...)
	}
	return errs
}

func limitType(kind corev1.LimitType, path *field.Path) field.ErrorList {
	if errs := validate.Qualified(string(kind), path); len(errs) > 0 {
		return errs
	}
	switch kind {
	case corev1.LimitTypePod, corev1.LimitTypeContainer, corev1.LimitTypePersistentVolumeClaim:
		return nil
	}
	if strings.Contains(string(kind), "/") {
		return nil
	}
	return field.ErrorList{field.Invalid(path, kind, "must be a standard limit type or fully qualified")}
}

// limitNames checks the names of the limited resources. A pod has no defaults, and a claim requires a bound on storage.
func limitNames(item *corev1.LimitRangeItem, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, bound := range []struct {
		name   string
		values corev1.ResourceList
	}{
		{"max", item.Max}, {"min", item.Min}, {"default", item.Default}, {"defaultRequest", item.DefaultRequest},
		{"maxLimitRequestRatio", item.MaxLimitRequestRatio},
	} {
		if item.Type == corev1.LimitTypePod && strings.HasPrefix(bound.name, "default") {
			if len(bound.values) > 0 {
				errs = append(errs, field.Forbidden(path.Child(bound.name), "may not be specified when `type` is 'Pod'"))
			}
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(bound.values)) {
			errs = append(errs, validate.LimitedResource(item.Type, name, path.Child(bound.name).Key(string(name)))...)
		}
	}
	if item.Type == corev1.LimitTypePersistentVolumeClaim {
		_, least := item.Min[corev1.ResourceStorage]
		_, most := item.Max[corev1.ResourceStorage]
		if !least && !most {
			errs = append(errs, field.Required(path.Child("limits"),
				"either minimum or maximum storage value is required, but neither was provided"))
		}
	}
	return errs
}

// limitOrder requires min <= defaultRequest <= default <= max for every resource, and a satisfiable ratio.
func limitOrder(item *corev1.LimitRangeItem, path *field.Path) field.ErrorList {
	defaults, requests := item.Default, item.DefaultRequest
	if item.Type == corev1.LimitTypePod {
		defaults, requests = nil, nil
	}
	names := sets.New[corev1.ResourceName]()
	for _, list := range []corev1.ResourceList{item.Max, item.Min, defaults, requests, item.MaxLimitRequestRatio} {
		names = names.Union(sets.KeySet(list))
	}
	var errs field.ErrorList
	for _, name := range sets.List(names) {
		errs = append(errs, boundsInOrder(name, item, defaults, requests, path)...)
		errs = append(errs, ratio(name, item, path.Child("maxLimitRequestRatio").Key(string(name)))...)
		limit, limited := defaults[name]
		request, asked := requests[name]
		if overcommits := validate.NativeResource(name) && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix); overcommits {
			continue
		}
		if limited && asked && limit.Cmp(request) != 0 {
			errs = append(errs, field.Invalid(path.Child("defaultRequest").Key(string(name)), request.String(), fmt.Sprintf(
				"default value %s must equal to defaultRequest value %s in %s", limit.String(), request.String(), name)))
		}
	}
	return errs
}

func boundsInOrder(name corev1.ResourceName, item *corev1.LimitRangeItem, defaults, requests corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, pair := range []struct {
		low, high         corev1.ResourceList
		blamed, value     string
		lowText, highText string
	}{
		{item.Min, item.Max, "min", "low", "min value", "max value"},
		{item.Min, requests, "defaultRequest", "high", "min value", "default request value"},
		{requests, item.Max, "defaultRequest", "low", "default request value", "max value"},
		{requests, defaults, "defaultRequest", "low", "default request value", "default limit value"},
		{item.Min, defaults, "default", "low", "min value", "default value"},
		{defaults, item.Max, "default", "high", "default value", "max value"},
	} {
		low, hasLow := pair.low[name]
		high, hasHigh := pair.high[name]
		if !hasLow || !hasHigh || low.Cmp(high) <= 0 {
			continue
		}
		value := low
		if pair.value == "high" {
			value = high
		}
		errs = append(errs, field.Invalid(path.Child(pair.blamed).Key(string(name)), value.String(),
			fmt.Sprintf("%s %s is greater than %s %s", pair.lowText, low.String(), pair.highText, high.String())))
	}
	return errs
}

func ratio(name corev1.ResourceName, item *corev1.LimitRangeItem, path *field.Path) field.ErrorList {
	asked, set := item.MaxLimitRequestRatio[name]
	if !set {
		return nil
	}
	var errs field.ErrorList
	if asked.Cmp(*resource.NewQuantity(1, resource.DecimalSI)) < 0 {
		errs = append(errs, field.Invalid(path, asked.String(), fmt.Sprintf("ratio %s is less than 1", asked.String())))
	}
	low, hasLow := item.Min[name]
	high, hasHigh := item.Max[name]
	if !hasLow || !hasHigh {
		return errs
	}
	if possible := high.AsApproximateFloat64() / low.AsApproximateFloat64(); asked.AsApproximateFloat64() > possible {
		errs = append(errs, field.Invalid(path, asked.String(), fmt.Sprintf("ratio %s is greater than max/min = %f", asked.String(), possible)))
	}
	return errs
}
