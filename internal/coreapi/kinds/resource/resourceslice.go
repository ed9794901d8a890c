package resource

import (
	"fmt"
	"slices"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/selectable"
	"portico.dev/internal/coreapi/validate"
)

func resourceSliceResource() registry.Resource {
	return registry.Resource{
		Name: "resourceslices", Singular: "resourceslice", ClusterScoped: true,
		Object: &resourcev1.ResourceSlice{}, List: &resourcev1.ResourceSliceList{},
		WatchCache: true, AllowUnconditionalUpdate: true, ReturnDeletedObject: true, Generations: true,
		Samples: []string{
			"metadata: {name: n1-gpus}\n" +
				"spec:\n" +
				"  driver: gpu.example.com\n" +
				"  pool: {name: n1, generation: 1, resourceSliceCount: 1}\n" +
				"  nodeName: n1\n" +
				"  devices: [{name: gpu-0, attributes: {model: {string: a}, index: {int: 0}}, capacity: {memory: {value: 80Gi}}}]\n",
		},
		Rules: rulesOf(Validate_ResourceSlice, handwritten[*resourcev1.ResourceSlice]{
			create: createResourceSlice, update: updateResourceSlice,
		}),
		Warnings: validate.Warn(resourceSliceWarnings),
		Defaults: defaults.Of(defaultResourceSlice),
		Columns:  resourceSliceColumns, Fields: resourceSliceFields(),
		Spec: registry.SpecOf(func(s *resourcev1.ResourceSlice) *resourcev1.ResourceSliceSpec { return &s.Spec }),
		PrepareCreate: func(obj runtime.Object) {
			dropDisabledOfSlice(&obj.(*resourcev1.ResourceSlice).Spec, &resourcev1.ResourceSliceSpec{})
		},
		PrepareUpdate: func(obj, old runtime.Object) {
			updateSlice(obj.(*resourcev1.ResourceSlice), old.(*resourcev1.ResourceSlice))
		},
	}
}

// updateSlice increments the generation also for changes that are then dropped. kube-apiserver does so for this kind of
// resource.k8s.io only.
func updateSlice(s, old *resourcev1.ResourceSlice) {
	if !equality.Semantic.DeepEqual(s.Spec, old.Spec) {
		s.Generation = old.Generation + 1
	}
	dropDisabledOfSlice(&s.Spec, &old.Spec)
}

func resourceSliceColumns() columns.Printer {
	doc := resourcev1.ResourceSliceSpec{}.SwaggerDoc()
	return columns.Show(func(s *resourcev1.ResourceSlice, now time.Time) []any {
		return []any{s.Name, nodeOfSlice(s), s.Spec.Driver, s.Spec.Pool.Name, columns.AgeOf(s, now)}
	}, columns.Name(), columns.Text("Node", doc["nodeName"]), columns.Text("Driver", doc["driver"]),
		columns.Text("Pool", resourcev1.ResourcePool{}.SwaggerDoc()["name"]), columns.Age())
}

func nodeOfSlice(s *resourcev1.ResourceSlice) string {
	if s.Spec.NodeName == nil {
		return ""
	}
	return *s.Spec.NodeName
}

func resourceSliceFields() *selectable.Fields {
	return selectable.Of(selectable.Own(resourcev1.ResourceSliceSelectorNodeName, resourcev1.ResourceSliceSelectorDriver, resourcev1.ResourceSliceSelectorPoolName),
		func(set fields.Set, s *resourcev1.ResourceSlice) {
			set[resourcev1.ResourceSliceSelectorNodeName] = nodeOfSlice(s)
			set[resourcev1.ResourceSliceSelectorDriver] = s.Spec.Driver
			set[resourcev1.ResourceSliceSelectorPoolName] = s.Spec.Pool.Name
		}).NamingTheKind()
}

func defaultResourceSlice(s *resourcev1.ResourceSlice) {
	for i := range s.Spec.Devices {
		for j := range s.Spec.Devices[i].Taints {
			defaultTaint(&s.Spec.Devices[i].Taints[j])
		}
	}
}

func resourceSliceWarnings(s *resourcev1.ResourceSlice) []string {
	if s.Spec.Driver == strings.ToLower(s.Spec.Driver) {
		return nil
	}
	return []string{fmt.Sprintf("spec.driver: driver names should be lowercase; %q contains uppercase characters", s.Spec.Driver)}
}

// dropDisabledOfSlice clears fields of features that are alpha and off, each unless old has a field of the feature.
func dropDisabledOfSlice(s, old *resourcev1.ResourceSliceSpec) {
	if old.PartitionTypeAttribute == nil {
		s.PartitionTypeAttribute = nil
	}
	if len(old.SkipNodeOperations) == 0 {
		s.SkipNodeOperations = nil
	}
	var groups, allocatable bool
	for _, d := range old.Devices {
		allocatable = allocatable || len(d.NodeAllocatableResources) > 0
		for _, c := range d.ConsumesCounters {
			groups = groups || len(c.CompatibilityGroups) > 0
		}
	}
	lists := haveLists(old)
	for i := range s.Devices {
		d := &s.Devices[i]
		for j := range d.ConsumesCounters {
			if !groups {
				d.ConsumesCounters[j].CompatibilityGroups = nil
			}
		}
		if !allocatable {
			d.NodeAllocatableResources = nil
		}
		for name, a := range d.Attributes {
			if !lists && isList(&a) {
				a.BoolValues, a.IntValues, a.StringValues, a.VersionValues = nil, nil, nil, nil
				d.Attributes[name] = a
			}
		}
	}
}

func isList(a *resourcev1.DeviceAttribute) bool {
	return a.BoolValues != nil || a.IntValues != nil || a.StringValues != nil || a.VersionValues != nil
}

func haveLists(s *resourcev1.ResourceSliceSpec) bool {
	for _, d := range s.Devices {
		for _, a := range d.Attributes {
			if isList(&a) {
				return true
			}
		}
	}
	return false
}

func consumesCounters(s *resourcev1.ResourceSliceSpec) bool {
	return slices.ContainsFunc(s.Devices, func(d resourcev1.Device) bool { return len(d.ConsumesCounters) > 0 })
}

func hasTaints(s *resourcev1.ResourceSliceSpec) bool {
	return slices.ContainsFunc(s.Devices, func(d resourcev1.Device) bool { return len(d.Taints) > 0 })
}

func createResourceSlice(s *resourcev1.ResourceSlice) field.ErrorList {
	errs := validate.ObjectMeta(&s.ObjectMeta, validate.ClusterScoped, validation.NameIsDNSSubdomain)
	return append(errs, sliceSpec(&s.Spec, nil, field.NewPath("spec"))...)
}

func updateResourceSlice(s, old *resourcev1.ResourceSlice) field.ErrorList {
	return sliceSpec(&s.Spec, &old.Spec, field.NewPath("spec"))
}

// sliceSpec checks a slice. old is nil on create.
func sliceSpec(s, old *resourcev1.ResourceSliceSpec, path *field.Path) field.ErrorList {
	errs := driverName(s.Driver, path.Child("driver"))
	errs = append(errs, pool(&s.Pool, path.Child("pool"))...)
	if old != nil {
		errs = append(errs, validate.Immutable(s.Pool.Name, old.Pool.Name, path.Child("pool", "name"))...)
		errs = append(errs, validate.Immutable(s.Driver, old.Driver, path.Child("driver"))...)
		errs = append(errs, validate.Immutable(s.NodeName, old.NodeName, path.Child("nodeName"))...)
	}
	errs = append(errs, sliceNodes(s, path)...)
	if s.SharedCounters != nil && s.Devices != nil {
		errs = append(errs, field.Invalid(path, "", "only one of `sharedCounters` or `devices` is allowed"))
	}
	most := resourcev1.ResourceSliceMaxDevices
	if hasTaints(s) || consumesCounters(s) || haveLists(s) {
		most = resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
	}
	perDevice := validate.IsTrue(s.PerDeviceNodeSelection)
	errs = append(errs, checkSet(s.Devices, most, byHand, byHand, path.Child("devices"),
		func(d resourcev1.Device) string { return d.Name },
		func(d resourcev1.Device, at *field.Path) field.ErrorList {
			return sliceDevice(&d, deviceCalled(old, d.Name), perDevice, at)
		})...)
	errs = append(errs, checkSet(s.SharedCounters, resourcev1.ResourceSliceMaxCounterSets, byTags, byTags, path.Child("sharedCounters"),
		func(c resourcev1.CounterSet) string { return c.Name }, counterSet)...)
	if s.PartitionTypeAttribute != nil {
		errs = append(errs, partitionType(s, path)...)
	}
	return append(errs, skippedOperations(s.SkipNodeOperations, path.Child("skipNodeOperations"))...)
}

func pool(p *resourcev1.ResourcePool, path *field.Path) field.ErrorList {
	errs := poolName(p.Name, path.Child("name"))
	if p.ResourceSliceCount <= 0 {
		errs = append(errs, field.Invalid(path.Child("resourceSliceCount"), p.ResourceSliceCount, "must be greater than zero"))
	}
	if p.Generation < 0 {
		errs = append(errs, field.Invalid(path.Child("generation"), p.Generation, "must be greater than or equal to zero"))
	}
	return errs
}

// sliceNodes requires exactly one field that selects the nodes with access to the devices of a slice.
func sliceNodes(s *resourcev1.ResourceSliceSpec, path *field.Path) field.ErrorList {
	const unsetOrTrue = "must be either unset or set to true"
	var errs field.ErrorList
	var set []string
	if s.NodeName != nil {
		if at := path.Child("nodeName"); *s.NodeName != "" {
			set = append(set, "`nodeName`")
			errs = append(errs, nodeName(*s.NodeName, at)...)
		} else {
			errs = append(errs, field.Invalid(at, *s.NodeName, "must be either unset or set to a non-empty string"))
		}
	}
	if s.NodeSelector != nil {
		set = append(set, "`nodeSelector`")
		at := path.Child("nodeSelector")
		errs = append(errs, validate.NodeTerms(s.NodeSelector, at)...)
		if len(s.NodeSelector.NodeSelectorTerms) != 1 {
			errs = append(errs, field.Invalid(at.Child("nodeSelectorTerms"), s.NodeSelector.NodeSelectorTerms, "must have exactly one node selector term"))
		}
	}
	flag := func(name string, value *bool) {
		switch {
		case value == nil:
		case *value:
			set = append(set, "`"+name+"`")
		default:
			errs = append(errs, field.Invalid(path.Child(name), *value, unsetOrTrue))
		}
	}
	flag("allNodes", s.AllNodes)
	flag("perDeviceNodeSelection", s.PerDeviceNodeSelection)
	const one = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	switch {
	case len(set) == 0:
		errs = append(errs, field.Required(path, one))
	case len(set) > 1:
		errs = append(errs, field.Invalid(path, fmt.Sprintf("{%s}", strings.Join(set, ", ")), one+", but multiple fields are set"))
	}
	return errs
}

// deviceCalled returns the device of a slice with a name, or nil. s may be nil.
func deviceCalled(s *resourcev1.ResourceSliceSpec, name string) *resourcev1.Device {
	if s == nil {
		return nil
	}
	for i := range s.Devices {
		if s.Devices[i].Name == name {
			return &s.Devices[i]
		}
	}
	return nil
}

// partitionType requires the partition type attribute for devices that consume counters.
func partitionType(s *resourcev1.ResourceSliceSpec, path *field.Path) field.ErrorList {
	name := string(*s.PartitionTypeAttribute)
	if !consumesCounters(s) {
		return field.ErrorList{field.Invalid(path.Child("partitionTypeAttribute"), name, "may only be set on a slice which declares devices that consume counters")}
	}
	if len(fullyQualifiedName(*s.PartitionTypeAttribute, nil)) > 0 {
		return nil // the tags report this, and no device can have such an attribute
	}
	bare, _ := strings.CutPrefix(name, s.Driver+"/")
	var errs field.ErrorList
	for i, d := range s.Devices {
		if len(d.ConsumesCounters) == 0 {
			continue
		}
		a, set := d.Attributes[resourcev1.QualifiedName(name)]
		if !set {
			a, set = d.Attributes[resourcev1.QualifiedName(bare)]
		}
		at := path.Child("devices").Index(i).Child("attributes").Key(name)
		switch {
		case !set:
			errs = append(errs, field.Required(at, "device consumes counters and `partitionTypeAttribute` names this attribute, so it must be set"))
		case a.StringValue == nil:
			errs = append(errs, field.Invalid(at, a, "must be a string value because `partitionTypeAttribute` names this attribute"))
		}
	}
	return errs
}
