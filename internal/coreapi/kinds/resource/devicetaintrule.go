package resource

import (
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func deviceTaintRuleResource() registry.Resource {
	return registry.Resource{
		Name: "devicetaintrules", Singular: "devicetaintrule", ClusterScoped: true,
		Object: &resourcev1.DeviceTaintRule{}, List: &resourcev1.DeviceTaintRuleList{}, Generations: true,
		Samples: []string{
			"metadata: {name: drain}\n" +
				"spec: {deviceSelector: {driver: gpu.example.com, pool: n1}, taint: {key: example.com/broken, effect: NoSchedule, timeAdded: '2026-01-02T03:04:05Z'}}",
		},
		Rules: rulesOf(Validate_DeviceTaintRule, handwritten[*resourcev1.DeviceTaintRule]{
			create: createDeviceTaintRule, update: updateDeviceTaintRule, status: deviceTaintRuleStatus,
		}),
		Defaults: defaults.Of(func(r *resourcev1.DeviceTaintRule) { defaultTaint(&r.Spec.Taint) }),
		Columns:  deviceTaintRuleColumns, PrepareUpdate: renewTaint,
		Spec:   registry.SpecOf(func(r *resourcev1.DeviceTaintRule) *resourcev1.DeviceTaintRuleSpec { return &r.Spec }),
		Status: registry.StatusOf(func(r *resourcev1.DeviceTaintRule) *resourcev1.DeviceTaintRuleStatus { return &r.Status }),
	}
}

func deviceTaintRuleColumns() columns.Printer {
	doc := resourcev1.DeviceTaint{}.SwaggerDoc()
	return columns.Show(func(r *resourcev1.DeviceTaintRule, now time.Time) []any {
		added := ""
		if r.Spec.Taint.TimeAdded != nil {
			added = columns.Since(r.Spec.Taint.TimeAdded.Time, now)
		}
		return []any{r.Name, r.Spec.Taint.Key, r.Spec.Taint.Value, string(r.Spec.Taint.Effect), added, columns.AgeOf(r, now)}
	}, columns.Name(), columns.Text("Key", doc["key"]), columns.Text("Value", doc["value"]), columns.Text("Effect", doc["effect"]),
		columns.Text("TimeAdded", doc["timeAdded"]), columns.Age())
}

// defaultTaint sets the time of a taint, in seconds as in storage.
func defaultTaint(t *resourcev1.DeviceTaint) {
	defaults.Point(&t.TimeAdded, metav1.Time{Time: time.Now().Truncate(time.Second)})
}

// renewTaint updates the time of a rule's taint when its effect changes, unless the client sets one: toleration periods start
// at that time.
func renewTaint(obj, old runtime.Object) {
	taint, before := &obj.(*resourcev1.DeviceTaintRule).Spec.Taint, old.(*resourcev1.DeviceTaintRule).Spec.Taint
	if taint.Effect != before.Effect && taint.TimeAdded.Equal(before.TimeAdded) {
		taint.TimeAdded = &metav1.Time{Time: time.Now().Truncate(time.Second)}
	}
}

func createDeviceTaintRule(r *resourcev1.DeviceTaintRule) field.ErrorList {
	return append(validate.ObjectMeta(&r.ObjectMeta, validate.ClusterScoped, validation.NameIsDNSSubdomain), taintRuleSpec(&r.Spec, nil)...)
}

func updateDeviceTaintRule(r, old *resourcev1.DeviceTaintRule) field.ErrorList {
	return taintRuleSpec(&r.Spec, &old.Spec.Taint)
}

func taintRuleSpec(s *resourcev1.DeviceTaintRuleSpec, old *resourcev1.DeviceTaint) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if selector, path := s.DeviceSelector, spec.Child("deviceSelector"); selector != nil {
		if selector.Driver != nil {
			errs = append(errs, driverName(*selector.Driver, path.Child("driver"))...)
		}
		if selector.Pool != nil {
			errs = append(errs, poolName(*selector.Pool, path.Child("pool"))...)
		}
		if selector.Device != nil {
			errs = append(errs, label(*selector.Device, path.Child("device"))...)
		}
	}
	return append(errs, taint(&s.Taint, old, spec.Child("taint"))...)
}

var taintEffects = []resourcev1.DeviceTaintEffect{
	resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone,
}

// taint tolerates an unchanged effect that is no longer known. old is nil for a new taint.
func taint(t, old *resourcev1.DeviceTaint, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabelName(t.Key, path.Child("key"))
	if t.Value != "" {
		errs = append(errs, labelValue(t.Value, path.Child("value"))...)
	}
	if old == nil || old.Effect != t.Effect {
		errs = append(errs, covered(validate.Required(t.Effect, path.Child("effect"), taintEffects...))...)
	}
	return errs
}

func labelValue(value string, path *field.Path) field.ErrorList {
	return validate.Invalid(path, value, utilvalidation.IsValidLabelValue(value))
}

func deviceTaintRuleStatus(r, _ *resourcev1.DeviceTaintRule) field.ErrorList {
	path := field.NewPath("status", "conditions")
	errs := metav1validation.ValidateConditions(r.Status.Conditions, path)
	if n := len(r.Status.Conditions); n > resourcev1.DeviceTaintRuleStatusMaxConditions {
		errs = append(errs, field.TooMany(path, n, resourcev1.DeviceTaintRuleStatusMaxConditions))
	}
	return errs
}
