package resource

import (
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func resourceClaimResource() registry.Resource {
	return registry.Resource{
		Name: "resourceclaims", Singular: "resourceclaim",
		Object: &resourcev1.ResourceClaim{}, List: &resourcev1.ResourceClaimList{},
		WatchCache: true, AllowUnconditionalUpdate: true, ReturnDeletedObject: true,
		Samples: []string{
			"metadata: {name: gpu, namespace: ns}\n" +
				"spec: {devices: {requests: [{name: one, exactly: {deviceClassName: gpus, allocationMode: ExactCount, count: 1}}]}}",
			"metadata: {name: either, namespace: ns}\n" +
				"spec:\n" +
				"  devices:\n" +
				"    requests:\n" +
				"    - name: some\n" +
				"      firstAvailable:\n" +
				"      - {name: big, deviceClassName: gpus, allocationMode: All, selectors: [{cel: {expression: 'device.attributes[\"gpu.example.com\"].big'}}]}\n" +
				"      - {name: small, deviceClassName: gpus, allocationMode: ExactCount, count: 2}\n" +
				"    constraints: [{requests: [some], matchAttribute: gpu.example.com/node}]\n" +
				"    config: [{requests: [some/big], opaque: {driver: gpu.example.com, parameters: {shared: false}}}]\n",
		},
		Rules: rulesOf(Validate_ResourceClaim, handwritten[*resourcev1.ResourceClaim]{
			create: createResourceClaim, update: updateResourceClaim, status: resourceClaimStatus,
		}),
		Defaults: defaults.Of(defaultResourceClaim),
		Columns:  resourceClaimColumns,
		Spec:     registry.SpecOf(func(c *resourcev1.ResourceClaim) *resourcev1.ResourceClaimSpec { return &c.Spec }),
		Status:   registry.StatusOf(func(c *resourcev1.ResourceClaim) *resourcev1.ResourceClaimStatus { return &c.Status }),
		PrepareCreate: func(obj runtime.Object) {
			dropDisabledOfSpec(&obj.(*resourcev1.ResourceClaim).Spec, nil)
		},
		PrepareUpdate: func(obj, old runtime.Object) {
			dropDisabledOfSpec(&obj.(*resourcev1.ResourceClaim).Spec, &old.(*resourcev1.ResourceClaim).Spec)
		},
		PrepareStatus: prepareClaimStatus,
		CheckCreate:   mayAdministerNewClaim,
		CheckStatus:   mayChangeClaimStatus,
	}
}

func resourceClaimColumns() columns.Printer {
	return columns.Show(func(c *resourcev1.ResourceClaim, now time.Time) []any {
		return []any{c.Name, claimState(c), columns.AgeOf(c, now)}
	}, columns.Name(), columns.Text("State", "A summary of the current state (allocated, pending, reserved, etc.)."), columns.Age())
}

func claimState(c *resourcev1.ResourceClaim) string {
	var states []string
	if c.DeletionTimestamp != nil {
		states = append(states, "deleted")
	}
	switch {
	case c.Status.Allocation != nil && len(c.Status.ReservedFor) > 0:
		states = append(states, "allocated", "reserved")
	case c.Status.Allocation != nil:
		states = append(states, "allocated")
	case c.DeletionTimestamp == nil:
		states = append(states, "pending")
	}
	return strings.Join(states, ",")
}

func defaultResourceClaim(c *resourcev1.ResourceClaim) {
	defaultDevices(&c.Spec.Devices)
	if c.Status.Allocation != nil {
		for i := range c.Status.Allocation.Devices.Results {
			defaultTolerations(c.Status.Allocation.Devices.Results[i].Tolerations)
		}
	}
}

func defaultDevices(d *resourcev1.DeviceClaim) {
	for i := range d.Requests {
		if exactly := d.Requests[i].Exactly; exactly != nil {
			defaultCount(&exactly.AllocationMode, &exactly.Count)
			defaultTolerations(exactly.Tolerations)
		}
		for j := range d.Requests[i].FirstAvailable {
			sub := &d.Requests[i].FirstAvailable[j]
			defaultCount(&sub.AllocationMode, &sub.Count)
			defaultTolerations(sub.Tolerations)
		}
	}
}

func defaultCount(mode *resourcev1.DeviceAllocationMode, count *int64) {
	defaults.Set(mode, resourcev1.DeviceAllocationModeExactCount)
	if *mode == resourcev1.DeviceAllocationModeExactCount {
		defaults.Set(count, 1)
	}
}

func defaultTolerations(list []resourcev1.DeviceToleration) {
	for i := range list {
		defaults.Set(&list[i].Operator, resourcev1.DeviceTolerationOpEqual)
	}
}

// dropDisabledOfSpec clears fields of features that are alpha and off, unless the old object has them.
func dropDisabledOfSpec(spec, old *resourcev1.ResourceClaimSpec) {
	if old != nil && derivesAttributes(old) {
		return
	}
	for i := range spec.Devices.Requests {
		if exactly := spec.Devices.Requests[i].Exactly; exactly != nil {
			exactly.DerivedAttributes = nil
		}
		for j := range spec.Devices.Requests[i].FirstAvailable {
			spec.Devices.Requests[i].FirstAvailable[j].DerivedAttributes = nil
		}
	}
}

func derivesAttributes(spec *resourcev1.ResourceClaimSpec) bool {
	for _, request := range spec.Devices.Requests {
		if request.Exactly != nil && len(request.Exactly.DerivedAttributes) > 0 {
			return true
		}
		for _, sub := range request.FirstAvailable {
			if len(sub.DerivedAttributes) > 0 {
				return true
			}
		}
	}
	return false
}

func createResourceClaim(c *resourcev1.ResourceClaim) field.ErrorList {
	errs := validate.ObjectMeta(&c.ObjectMeta, validate.Namespaced, validation.NameIsDNSSubdomain)
	return append(errs, devices(&c.Spec.Devices, field.NewPath("spec", "devices"))...)
}

// updateResourceClaim does not validate the spec again, because it is immutable.
func updateResourceClaim(c, old *resourcev1.ResourceClaim) field.ErrorList {
	errs := validate.ObjectMeta(&c.ObjectMeta, validate.Namespaced, validation.NameIsDNSSubdomain)
	return append(errs, covered(validate.Immutable(c.Spec, old.Spec, field.NewPath("spec")).WithOrigin(originImmutable))...)
}
