package resource

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/validate"
)

// prepareClaimStatus clears the field of a feature that is off, and drops the status of devices that are no longer allocated,
// because the component that deallocates them may not know the field.
func prepareClaimStatus(obj, old runtime.Object) {
	now, before := &obj.(*resourcev1.ResourceClaim).Status, old.(*resourcev1.ResourceClaim).Status
	if now.Allocation != nil && !skipsOperations(before.Allocation) {
		for i := range now.Allocation.Devices.Results {
			now.Allocation.Devices.Results[i].SkipNodeOperations = nil
		}
	}
	had, has := allocated(before.Allocation), allocated(now.Allocation)
	var kept []resourcev1.AllocatedDeviceStatus
	for _, d := range now.Devices {
		if !had[deviceOf(&d)] || has[deviceOf(&d)] {
			kept = append(kept, d)
		}
	}
	now.Devices = kept
}

func skipsOperations(a *resourcev1.AllocationResult) bool {
	if a == nil {
		return false
	}
	return slices.ContainsFunc(a.Devices.Results, func(r resourcev1.DeviceRequestAllocationResult) bool {
		return len(r.SkipNodeOperations) > 0
	})
}

// device identifies a device, or a share of it. Its fields are named as in upstream's error messages.
type device struct{ Driver, Pool, Device, ShareID string }

func deviceOf(s *resourcev1.AllocatedDeviceStatus) device {
	d := device{s.Driver, s.Pool, s.Device, ""}
	if s.ShareID != nil {
		d.ShareID = *s.ShareID
	}
	return d
}

// allocated returns the devices of an allocation, which may be nil.
func allocated(a *resourcev1.AllocationResult) map[device]bool {
	all := map[device]bool{}
	if a == nil {
		return all
	}
	for _, r := range a.Devices.Results {
		d := device{r.Driver, r.Pool, r.Device, ""}
		if r.ShareID != nil {
			d.ShareID = string(*r.ShareID)
		}
		all[d] = true
	}
	return all
}

func resourceClaimStatus(c, old *resourcev1.ResourceClaim) field.ErrorList {
	path := field.NewPath("status")
	s, before := &c.Status, &old.Status
	errs := checkSet(s.ReservedFor, resourcev1.ResourceClaimReservedForMaxSize, byTags, byTags, path.Child("reservedFor"),
		func(r resourcev1.ResourceClaimConsumerReference) types.UID { return r.UID }, consumer)
	devices := allocated(s.Allocation)
	errs = append(errs, checkSet(s.Devices, anySize, byHand, byTags, path.Child("devices"),
		func(d resourcev1.AllocatedDeviceStatus) device { return deviceOf(&d) },
		func(d resourcev1.AllocatedDeviceStatus, at *field.Path) field.ErrorList {
			return allocatedDevice(&d, devices, at)
		})...)
	switch reserved := path.Child("reservedFor"); {
	case len(s.ReservedFor) == 0:
	case s.Allocation == nil:
		errs = append(errs, field.Forbidden(reserved, "may not be specified when `allocated` is not set"))
	case c.DeletionTimestamp != nil && slices.ContainsFunc(s.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool {
		return !slices.Contains(before.ReservedFor, r)
	}):
		errs = append(errs, field.Forbidden(reserved, "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"))
	}
	// An unchanged allocation is not checked again, because the rules for new ones have become stricter.
	switch at := path.Child("allocation"); {
	case s.Allocation == nil:
	case before.Allocation != nil:
		errs = append(errs, covered(validate.Immutable(s.Allocation, before.Allocation, at).WithOrigin(originUpdate))...)
	default:
		errs = append(errs, allocation(s.Allocation, namesOfRequests(&c.Spec.Devices), at)...)
	}
	return errs
}

func consumer(r resourcev1.ResourceClaimConsumerReference, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.Resource == "" {
		errs = append(errs, field.Required(path.Child("resource"), ""))
	}
	if r.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	if r.UID == "" {
		errs = append(errs, field.Required(path.Child("uid"), ""))
	}
	return errs
}

func allocation(a *resourcev1.AllocationResult, names requestNames, path *field.Path) field.ErrorList {
	at := path.Child("devices")
	errs := checkEach(a.Devices.Results, resourcev1.AllocationResultsMaxSize, byTags, at.Child("results"),
		func(r resourcev1.DeviceRequestAllocationResult, at *field.Path) field.ErrorList {
			return allocationResult(&r, names, at)
		})
	const ofClassAndClaim = 2
	errs = append(errs, checkEach(a.Devices.Config, ofClassAndClaim*resourcev1.DeviceConfigMaxSize, byTags, at.Child("config"),
		func(c resourcev1.DeviceAllocationConfiguration, at *field.Path) field.ErrorList {
			errs := covered(validate.Required(c.Source, at.Child("source"), resourcev1.AllocationConfigSourceClaim, resourcev1.AllocationConfigSourceClass))
			errs = append(errs, requestReferences(c.Requests, names, at.Child("requests"))...)
			return append(errs, configuration(c.DeviceConfiguration, false, at)...)
		})...)
	if a.NodeSelector != nil {
		errs = append(errs, validate.NodeTerms(a.NodeSelector, path.Child("nodeSelector"))...)
	}
	return errs
}

func allocationResult(r *resourcev1.DeviceRequestAllocationResult, names requestNames, path *field.Path) field.ErrorList {
	errs := requestReference(r.Request, names, path.Child("request"))
	errs = append(errs, coveredDriverName(r.Driver, path.Child("driver"))...)
	errs = append(errs, covered(poolName(r.Pool, path.Child("pool")))...)
	errs = append(errs, label(r.Device, path.Child("device"))...)
	errs = append(errs, bindingConditions(r.BindingConditions, r.BindingFailureConditions, path)...)
	errs = append(errs, tolerations(r.Tolerations, path.Child("tolerations"))...)
	if r.ShareID != nil {
		errs = append(errs, covered(uid(string(*r.ShareID), path.Child("shareID")))...)
	}
	return append(errs, skippedOperations(r.SkipNodeOperations, path.Child("skipNodeOperations"))...)
}

// allocatedDevice checks a driver's report on a device of a claim.
func allocatedDevice(d *resourcev1.AllocatedDeviceStatus, devices map[device]bool, path *field.Path) field.ErrorList {
	errs := driverName(d.Driver, path.Child("driver"))
	errs = append(errs, poolName(d.Pool, path.Child("pool"))...)
	errs = append(errs, label(d.Device, path.Child("device"))...)
	if d.ShareID != nil {
		errs = append(errs, covered(uid(*d.ShareID, path.Child("shareID")))...)
	}
	if !devices[deviceOf(d)] {
		errs = append(errs, field.Invalid(path, deviceOf(d), "must be an allocated device in the claim"))
	}
	conditions := path.Child("conditions")
	if n := len(d.Conditions); n > resourcev1.AllocatedDeviceStatusMaxConditions {
		errs = append(errs, field.TooMany(conditions, n, resourcev1.AllocatedDeviceStatusMaxConditions))
	}
	errs = append(errs, metav1validation.ValidateConditions(d.Conditions, conditions)...)
	if d.Data != nil && len(d.Data.Raw) > 0 {
		errs = append(errs, jsonObject(*d.Data, resourcev1.AllocatedDeviceStatusDataMaxLength, path.Child("data"))...)
	}
	if d.NetworkData != nil {
		errs = append(errs, networkData(d.NetworkData, path.Child("networkData"))...)
	}
	return errs
}

func networkData(n *resourcev1.NetworkDeviceData, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, text := range []struct {
		name, value string
		most        int
	}{
		{"interfaceName", n.InterfaceName, resourcev1.NetworkDeviceDataInterfaceNameMaxLength},
		{"hardwareAddress", n.HardwareAddress, resourcev1.NetworkDeviceDataHardwareAddressMaxLength},
	} {
		if len(text.value) > text.most {
			errs = append(errs, field.TooLong(path.Child(text.name), "", text.most).WithOrigin(originMaxBytes).MarkCoveredByDeclarative())
		}
	}
	return append(errs, checkSet(n.IPs, resourcev1.NetworkDeviceDataMaxIPs, byTags, byTags, path.Child("ips"), itself,
		func(address string, at *field.Path) field.ErrorList {
			return utilvalidation.IsValidInterfaceAddress(at, address)
		})...)
}
