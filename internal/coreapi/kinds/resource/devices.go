package resource

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/validate"
)

// devices checks the requests of a new claim.
func devices(d *resourcev1.DeviceClaim, path *field.Path) field.ErrorList {
	names := namesOfRequests(d)
	attributes := derivation{constrained: constrainedAttributes(d.Constraints)}
	errs := checkSet(d.Requests, resourcev1.DeviceRequestsMaxSize, byTags, byTags, path.Child("requests"),
		func(r resourcev1.DeviceRequest) string { return r.Name },
		func(r resourcev1.DeviceRequest, at *field.Path) field.ErrorList {
			return deviceRequest(&r, &attributes, at)
		})
	errs = append(errs, checkEach(d.Constraints, resourcev1.DeviceConstraintsMaxSize, byTags, path.Child("constraints"),
		func(c resourcev1.DeviceConstraint, at *field.Path) field.ErrorList { return constraint(&c, names, at) })...)
	errs = append(errs, checkEach(d.Config, resourcev1.DeviceConfigMaxSize, byTags, path.Child("config"),
		func(c resourcev1.DeviceClaimConfiguration, at *field.Path) field.ErrorList {
			return append(requestReferences(c.Requests, names, at.Child("requests")), configuration(c.DeviceConfiguration, false, at)...)
		})...)
	if attributes.cost > resourcev1.DeviceClaimDerivedAttributeCELMaxCost {
		errs = append(errs, field.Forbidden(path, "too complex, total cost of derived attribute CEL expressions in the claim exceeds cost limit"))
	}
	return errs
}

// requestNames maps the requests of a claim to their alternatives.
type requestNames map[string]sets.Set[string]

func namesOfRequests(d *resourcev1.DeviceClaim) requestNames {
	names := requestNames{}
	for _, r := range d.Requests {
		alternatives := sets.New[string]()
		for _, sub := range r.FirstAvailable {
			alternatives.Insert(sub.Name)
		}
		names[r.Name] = alternatives
	}
	return names
}

// contains accepts "request" and "request/alternative".
func (n requestNames) contains(reference string) bool {
	request, alternative, named := strings.Cut(reference, "/")
	alternatives, known := n[request]
	return known && (!named || alternatives.Has(alternative))
}

func deviceRequest(r *resourcev1.DeviceRequest, attributes *derivation, path *field.Path) field.ErrorList {
	errs := label(r.Name, path.Child("name"))
	switch {
	case r.Exactly == nil && len(r.FirstAvailable) == 0:
		return append(errs, field.Required(path, "exactly one of `exactly` or `firstAvailable` is required"))
	case r.Exactly != nil && len(r.FirstAvailable) > 0:
		return append(errs, field.Invalid(path, nil, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"))
	case r.Exactly == nil:
		return append(errs, checkSet(r.FirstAvailable, resourcev1.FirstAvailableDeviceRequestMaxSize, byTags, byTags, path.Child("firstAvailable"),
			func(s resourcev1.DeviceSubRequest) string { return s.Name },
			func(s resourcev1.DeviceSubRequest, at *field.Path) field.ErrorList {
				return alternative(&s, r.Name, attributes, at)
			})...)
	}
	exactly, path := r.Exactly, path.Child("exactly")
	errs = append(errs, className(exactly.DeviceClassName, path.Child("deviceClassName"))...)
	errs = append(errs, selectors(exactly.Selectors, path.Child("selectors"))...)
	errs = append(errs, attributes.check(exactly.DerivedAttributes, r.Name, path.Child("derivedAttributes"))...)
	errs = append(errs, count(exactly.AllocationMode, exactly.Count, path)...)
	return append(errs, tolerations(exactly.Tolerations, path.Child("tolerations"))...)
}

func alternative(s *resourcev1.DeviceSubRequest, request string, attributes *derivation, path *field.Path) field.ErrorList {
	errs := label(s.Name, path.Child("name"))
	errs = append(errs, covered(className(s.DeviceClassName, path.Child("deviceClassName")))...)
	errs = append(errs, selectors(s.Selectors, path.Child("selectors"))...)
	errs = append(errs, attributes.check(s.DerivedAttributes, request+"/"+s.Name, path.Child("derivedAttributes"))...)
	errs = append(errs, count(s.AllocationMode, s.Count, path)...)
	return append(errs, tolerations(s.Tolerations, path.Child("tolerations"))...)
}

func count(mode resourcev1.DeviceAllocationMode, n int64, path *field.Path) field.ErrorList {
	at := path.Child("count")
	switch mode {
	case resourcev1.DeviceAllocationModeAll:
		if n != 0 {
			return field.ErrorList{field.Invalid(at, n, fmt.Sprintf("must not be specified when allocationMode is '%s'", mode))}
		}
		return nil
	case resourcev1.DeviceAllocationModeExactCount:
		if n <= 0 {
			return field.ErrorList{field.Invalid(at, n, "must be greater than zero")}
		}
		return nil
	}
	return covered(validate.OneOf(mode, path.Child("allocationMode"), resourcev1.DeviceAllocationModeAll, resourcev1.DeviceAllocationModeExactCount))
}

func tolerations(list []resourcev1.DeviceToleration, path *field.Path) field.ErrorList {
	return validate.Each(list, path, toleration)
}

func toleration(t *resourcev1.DeviceToleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		errs = append(errs, covered(metav1validation.ValidateLabelName(t.Key, path.Child("key")))...)
	}
	switch t.Operator {
	case resourcev1.DeviceTolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(path.Child("value"), t.Value, "must be empty for operator `Exists`"))
		}
	case resourcev1.DeviceTolerationOpEqual:
		errs = append(errs, labelValue(t.Value, path.Child("value"))...)
	default:
		errs = append(errs, covered(validate.Required(t.Operator, path.Child("operator"), resourcev1.DeviceTolerationOpEqual, resourcev1.DeviceTolerationOpExists))...)
	}
	if t.Effect != "" {
		errs = append(errs, covered(validate.OneOf(t.Effect, path.Child("effect"), taintEffects...))...)
	}
	return errs
}

func constraint(c *resourcev1.DeviceConstraint, names requestNames, path *field.Path) field.ErrorList {
	errs := requestReferences(c.Requests, names, path.Child("requests"))
	switch {
	case c.MatchAttribute != nil:
		errs = append(errs, covered(fullyQualifiedName(*c.MatchAttribute, path.Child("matchAttribute")))...)
	case c.DistinctAttribute != nil:
		errs = append(errs, covered(fullyQualifiedName(*c.DistinctAttribute, path.Child("distinctAttribute")))...)
	default:
		errs = append(errs, field.Required(path, `exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`))
	}
	return errs
}

func requestReferences(references []string, names requestNames, path *field.Path) field.ErrorList {
	return checkSet(references, resourcev1.DeviceRequestsMaxSize, byTags, byTags, path, itself,
		func(name string, at *field.Path) field.ErrorList { return requestReference(name, names, at) })
}

func requestReference(name string, names requestNames, path *field.Path) field.ErrorList {
	unknown := field.Invalid(path, name, "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'")
	parts := strings.Split(name, "/")
	if len(parts) > 2 {
		return field.ErrorList{unknown}
	}
	var errs field.ErrorList
	for _, part := range parts {
		errs = append(errs, label(part, path)...)
	}
	if !names.contains(name) {
		errs = append(errs, unknown)
	}
	return errs
}

// configuration checks the parameters for a driver. Known parameters are exempt from the size limit.
func configuration(c resourcev1.DeviceConfiguration, known bool, path *field.Path) field.ErrorList {
	path = path.Child("opaque")
	if c.Opaque == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := coveredDriverName(c.Opaque.Driver, path.Child("driver"))
	most := resourcev1.OpaqueParametersMaxLength
	if known {
		most = len(c.Opaque.Parameters.Raw)
	}
	return append(errs, jsonObject(c.Opaque.Parameters, most, path.Child("parameters"))...)
}

func jsonObject(raw runtime.RawExtension, most int, path *field.Path) field.ErrorList {
	const omitted = "<value omitted>"
	if len(raw.Raw) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	if len(raw.Raw) > most {
		return field.ErrorList{field.TooLong(path, "", most)}
	}
	var value any
	if err := json.Unmarshal(raw.Raw, &value); err != nil {
		return field.ErrorList{field.Invalid(path, omitted, fmt.Sprintf("error parsing data as JSON: %v", err))}
	}
	if value == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	if _, is := value.(map[string]any); !is {
		return field.ErrorList{field.Invalid(path, omitted, "must be a valid JSON object")}
	}
	return nil
}

// bindingConditions checks the conditions that a pod waits for before it is bound, and the conditions that report their
// failure.
func bindingConditions(conditions, failures []string, path *field.Path) field.ErrorList {
	at, atFailures := path.Child("bindingConditions"), path.Child("bindingFailureConditions")
	errs := checkEach(conditions, resourcev1.BindingConditionsMaxSize, byTags, at, metav1validation.ValidateLabelName)
	errs = append(errs, checkEach(failures, resourcev1.BindingFailureConditionsMaxSize, byTags, atFailures, metav1validation.ValidateLabelName)...)
	duplicates := func(list []string, at *field.Path, also func(i int, name string)) {
		seen := sets.New[string]()
		for i, name := range list {
			if seen.Has(name) {
				errs = append(errs, field.Duplicate(at.Index(i), name))
			}
			seen.Insert(name)
			also(i, name)
		}
	}
	duplicates(conditions, at, func(int, string) {})
	duplicates(failures, atFailures, func(i int, name string) {
		if slices.Contains(conditions, name) {
			errs = append(errs, field.Invalid(atFailures.Index(i), name, "bindingFailureConditions must not overlap with bindingConditions"))
		}
	})
	switch {
	case len(conditions) == 0 && len(failures) > 0:
		errs = append(errs, field.Invalid(at, conditions, "bindingConditions are required to use bindingFailureConditions"))
	case len(failures) == 0 && len(conditions) > 0:
		errs = append(errs, field.Invalid(atFailures, failures, "bindingFailureConditions are required to use bindingConditions"))
	}
	return errs
}

// skippedOperations requires that operations skipped at preparation on a node are also skipped at unpreparation.
func skippedOperations(skipped []resourcev1.SkipNodeOperation, path *field.Path) field.ErrorList {
	if slices.Contains(skipped, resourcev1.SkipNodeOperationNodePrepareResources) &&
		!slices.Contains(skipped, resourcev1.SkipNodeOperationNodeUnprepareResources) && !slices.Contains(skipped, resourcev1.SkipNodeOperationAll) {
		return field.ErrorList{field.Invalid(path, skipped, "NodePrepareResources cannot be skipped unless NodeUnprepareResources is also skipped")}
	}
	return nil
}
