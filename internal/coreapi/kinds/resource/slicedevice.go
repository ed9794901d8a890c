package resource

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/validate"
)

// sliceDevice checks a device of a slice. old is the stored device, or nil if it is new. perDevice reports whether each device
// selects its nodes.
func sliceDevice(d, old *resourcev1.Device, perDevice bool, path *field.Path) field.ErrorList {
	errs := label(d.Name, path.Child("name"))
	if n, most := len(d.Attributes)+len(d.Capacity), resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice; n > most {
		errs = append(errs, field.Invalid(path, n, fmt.Sprintf("the total number of attributes and capacities must not exceed %d", most)))
	}
	if n, most := attributeValues(d), resourcev1.ResourceSliceMaxAttributeValuesPerDevice; n > most {
		errs = append(errs, field.Invalid(path, n, fmt.Sprintf("the total number of attribute values must not exceed %d", most)))
	}
	errs = append(errs, checkMap(d.Attributes, anySize, longestQualifiedName, byHand, path.Child("attributes"), qualifiedName, attribute)...)
	if old == nil || !apiequality.Semantic.DeepEqual(old.Capacity, d.Capacity) {
		check := exclusiveCapacity
		if validate.IsTrue(d.AllowMultipleAllocations) {
			check = sharedCapacity
		}
		errs = append(errs, checkMap(d.Capacity, anySize, longestQualifiedName, byHand, path.Child("capacity"), qualifiedName, check)...)
	}
	if old == nil || !apiequality.Semantic.DeepEqual(old.Taints, d.Taints) {
		errs = append(errs, checkEach(d.Taints, resourcev1.DeviceTaintsMaxLength, byHand, path.Child("taints"),
			func(t resourcev1.DeviceTaint, at *field.Path) field.ErrorList { return taint(&t, nil, at) })...)
	}
	errs = append(errs, checkSet(d.ConsumesCounters, resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice, byTags, byTags, path.Child("consumesCounters"),
		func(c resourcev1.DeviceCounterConsumption) string { return c.CounterSet }, counterConsumption)...)
	errs = append(errs, deviceNodes(d, perDevice, path)...)
	errs = append(errs, bindingConditions(d.BindingConditions, d.BindingFailureConditions, path)...)
	return append(errs, nodeAllocatable(d, path.Child("nodeAllocatableResources"))...)
}

// attributeValues counts each item of a list.
func attributeValues(d *resourcev1.Device) int {
	n := 0
	for _, a := range d.Attributes {
		n += max(1, len(a.BoolValues)+len(a.IntValues)+len(a.StringValues)+len(a.VersionValues))
	}
	return n
}

func deviceNodes(d *resourcev1.Device, perDevice bool, path *field.Path) field.ErrorList {
	if !perDevice {
		if d.NodeName == nil && d.NodeSelector == nil && d.AllNodes == nil {
			return nil
		}
		return field.ErrorList{field.Invalid(path, nil,
			"`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec")}
	}
	var errs field.ErrorList
	var set []string
	if d.NodeName != nil {
		if at := path.Child("nodeName"); *d.NodeName != "" {
			set = append(set, "`nodeName`")
			errs = append(errs, nodeName(*d.NodeName, at)...)
		} else {
			errs = append(errs, field.Invalid(at, *d.NodeName, "must not be empty"))
		}
	}
	if d.NodeSelector != nil {
		set = append(set, "`nodeSelector`")
		errs = append(errs, validate.NodeTerms(d.NodeSelector, path.Child("nodeSelector"))...)
	}
	if d.AllNodes != nil {
		if *d.AllNodes {
			set = append(set, "`allNodes`")
		} else {
			errs = append(errs, field.Invalid(path.Child("allNodes"), *d.AllNodes, "must be either unset or set to true"))
		}
	}
	const one = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
	switch {
	case len(set) == 0:
		errs = append(errs, field.Required(path, one))
	case len(set) > 1:
		errs = append(errs, field.Invalid(path, fmt.Sprintf("{%s}", strings.Join(set, ", ")), one))
	}
	return errs
}

func counterSet(c resourcev1.CounterSet, path *field.Path) field.ErrorList {
	return counters(c.Name, path.Child("name"), c.Counters, resourcev1.ResourceSliceMaxCountersPerCounterSet, path.Child("counters"))
}

func counterConsumption(c resourcev1.DeviceCounterConsumption, path *field.Path) field.ErrorList {
	return counters(c.CounterSet, path.Child("counterSet"), c.Counters, resourcev1.ResourceSliceMaxCountersPerDeviceCounterConsumption, path.Child("counters"))
}

func counters(set string, at *field.Path, values map[string]resourcev1.Counter, most int, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if set == "" {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, label(set, at)...)
	}
	if len(values) == 0 {
		return covered(append(errs, field.Required(path, "")))
	}
	return append(covered(errs), checkMap(values, most, utilvalidation.DNS1123LabelMaxLength, byTags, path, label,
		func(resourcev1.Counter, *field.Path) field.ErrorList { return nil })...)
}

const (
	number     = `(0|[1-9]\d*)`
	prerelease = `(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)`
	build      = `[0-9a-zA-Z-]+`
)

// semanticVersion matches versions of semver.org 2.0.0.
var semanticVersion = regexp.MustCompile(`^` + number + `\.` + number + `\.` + number +
	`(-` + prerelease + `(\.` + prerelease + `)*)?(\+` + build + `(\.` + build + `)*)?$`)

func attribute(a resourcev1.DeviceAttribute, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	set := 0
	is := func(name string, present bool, check func(at *field.Path) field.ErrorList) {
		if present {
			set++
			errs = append(errs, check(path.Child(name))...)
		}
	}
	fine := func(*field.Path) field.ErrorList { return nil }
	is("bool", a.BoolValue != nil, fine)
	is("int", a.IntValue != nil, fine)
	is("string", a.StringValue != nil, func(at *field.Path) field.ErrorList { return shortText(*a.StringValue, at) })
	is("version", a.VersionValue != nil, func(at *field.Path) field.ErrorList { return version(*a.VersionValue, at) })
	is("bools", a.BoolValues != nil, func(at *field.Path) field.ErrorList { return notEmpty(a.BoolValues, at) })
	is("ints", a.IntValues != nil, func(at *field.Path) field.ErrorList { return notEmpty(a.IntValues, at) })
	is("strings", a.StringValues != nil, func(at *field.Path) field.ErrorList {
		errs := notEmpty(a.StringValues, at)
		for i, text := range a.StringValues {
			errs = append(errs, covered(shortText(text, at.Index(i)).WithOrigin(originMaxBytes))...)
		}
		return errs
	})
	is("versions", a.VersionValues != nil, func(at *field.Path) field.ErrorList {
		errs := notEmpty(a.VersionValues, at)
		return append(errs, validate.EachValue(a.VersionValues, at, version)...)
	})
	const one = "exactly one value must be specified"
	switch set {
	case 0:
		errs = append(errs, field.Invalid(path, "", one).WithOrigin(originUnion).MarkCoveredByDeclarative())
	case 1:
	default:
		errs = append(errs, field.Invalid(path, a, one).WithOrigin(originUnion).MarkCoveredByDeclarative())
	}
	return errs
}

func notEmpty[T any](list []T, path *field.Path) field.ErrorList {
	if len(list) == 0 {
		return field.ErrorList{field.Invalid(path, list, "must not be empty if specified")}
	}
	return nil
}

func shortText(text string, path *field.Path) field.ErrorList {
	if len(text) > resourcev1.DeviceAttributeMaxValueLength {
		return field.ErrorList{field.TooLong(path, "", resourcev1.DeviceAttributeMaxValueLength)}
	}
	return nil
}

func version(text string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !semanticVersion.MatchString(text) {
		errs = append(errs, field.Invalid(path, text, "must be a string compatible with semver.org spec 2.0.0"))
	}
	return append(errs, shortText(text, path)...)
}

// nodeAllocatable checks the additional node resources of a device, such as memory.
func nodeAllocatable(d *resourcev1.Device, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for name, r := range d.NodeAllocatableResources {
		at := path.Key(string(name))
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			errs = append(errs, field.Invalid(at, name, "must be a node allocatable resource name"))
		}
		if r.Mapping == nil && r.Overhead == nil {
			errs = append(errs, field.Required(at, "at least one of mapping or overhead must be set"))
		}
		if r.Mapping != nil {
			errs = append(errs, allocatableMapping(r.Mapping, d.Capacity, at.Child("mapping"))...)
		}
		if r.Overhead != nil {
			errs = append(errs, allocatableOverhead(r.Overhead, at.Child("overhead"))...)
		}
	}
	return errs
}

func allocatableMapping(m *resourcev1.NodeAllocatableMapping, capacity map[resourcev1.QualifiedName]resourcev1.DeviceCapacity, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	key, multiplier := path.Child("capacityKey"), path.Child("capacityMultiplier")
	needs := func(at *field.Path, why string) {
		errs = append(errs, field.Required(at, why).WithOrigin("dependentRequired").MarkCoveredByDeclarative())
	}
	if m.CapacityKey != nil {
		if _, known := capacity[*m.CapacityKey]; *m.CapacityKey == "" {
			errs = append(errs, field.Invalid(key, "", "capacityKey must not be an empty string"))
		} else if !known {
			errs = append(errs, field.NotFound(key, *m.CapacityKey))
		}
		if m.CapacityMultiplier == nil {
			needs(multiplier, "capacityMultiplier is required when capacityKey is set")
		} else if m.CapacityMultiplier.Sign() <= 0 {
			errs = append(errs, field.Invalid(multiplier, m.CapacityMultiplier.String(), "must be positive"))
		}
	}
	if m.DeviceMultiplier != nil && m.DeviceMultiplier.Sign() <= 0 {
		errs = append(errs, field.Invalid(path.Child("deviceMultiplier"), m.DeviceMultiplier.String(), "must be positive"))
	}
	if m.CapacityMultiplier != nil && m.CapacityKey == nil {
		needs(key, "capacityKey is required when capacityMultiplier is set")
	}
	return errs
}

func allocatableOverhead(o *resourcev1.NodeAllocatableOverhead, path *field.Path) field.ErrorList {
	if o.PerPod == nil && o.PerContainer == nil {
		return field.ErrorList{field.Invalid(path, "", "at least one of perPod or perContainer must be set")}
	}
	var errs field.ErrorList
	if o.PerPod != nil && o.PerPod.Sign() < 0 {
		errs = append(errs, field.Invalid(path.Child("perPod"), o.PerPod.String(), "must be non-negative"))
	}
	if o.PerContainer != nil && o.PerContainer.Sign() < 0 {
		errs = append(errs, field.Invalid(path.Child("perContainer"), o.PerContainer.String(), "must be non-negative"))
	}
	return errs
}
