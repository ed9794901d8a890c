package resource

import (
	"fmt"
	"math"
	"strconv"

	resourcev1 "k8s.io/api/resource/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Rules for the capacity of a device that several claims share. Ranges with fractions (the feature DRAFractionalCapacityRange)
// are off by default, so bounds are compared as whole numbers.

// exclusiveCapacity checks the capacity of a device that is allocated to a single claim.
func exclusiveCapacity(c resourcev1.DeviceCapacity, path *field.Path) field.ErrorList {
	if c.RequestPolicy == nil {
		return nil
	}
	return field.ErrorList{field.Forbidden(path.Child("requestPolicy"), "allowMultipleAllocations must be true")}
}

func sharedCapacity(c resourcev1.DeviceCapacity, path *field.Path) field.ErrorList {
	policy := c.RequestPolicy
	if policy == nil {
		return nil
	}
	path = path.Child("requestPolicy")
	switch {
	case len(policy.ValidValues) > 0 && policy.ValidRange != nil:
		return field.ErrorList{field.Forbidden(path, `exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`)}
	case len(policy.ValidValues) > 0:
		if policy.Default == nil {
			return field.ErrorList{field.Required(path.Child("default"), "required when validValues is defined")}
		}
		return validValues(*policy.Default, c.Value, policy.ValidValues, path.Child("validValues"))
	case policy.ValidRange != nil:
		if policy.Default == nil {
			return field.ErrorList{field.Required(path.Child("default"), "required when validRange is defined")}
		}
		return validRange(*policy.Default, c.Value, policy.ValidRange, path.Child("validRange"))
	}
	return nil
}

func validValues(byDefault, most apiresource.Quantity, values []apiresource.Quantity, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := 1; i < len(values); i++ {
		if values[i-1].Cmp(values[i]) > 0 {
			errs = append(errs, field.Invalid(path.Index(i), values[i].String(), "values must be sorted in ascending order"))
		}
	}
	found := false
	errs = append(errs, checkSet(values, maxValidValues, byHand, byHand, path,
		func(q apiresource.Quantity) string { return strconv.FormatInt(q.Value(), 10) },
		func(q apiresource.Quantity, at *field.Path) field.ErrorList {
			found = found || q.Cmp(byDefault) == 0
			if q.Cmp(most) > 0 {
				return field.ErrorList{field.Invalid(at, q.String(), fmt.Sprintf("option is larger than capacity value: %s", most.String()))}
			}
			return nil
		})...)
	if !found {
		errs = append(errs, field.Invalid(path, byDefault.String(), "default value is not valid according to the requestPolicy"))
	}
	return errs
}

func validRange(byDefault, most apiresource.Quantity, r *resourcev1.CapacityRequestPolicyRange, path *field.Path) field.ErrorList {
	least, greatest := path.Child("min"), path.Child("max")
	if r.Min == nil {
		return field.ErrorList{field.Required(least, "required when validRange is defined")}
	}
	var errs field.ErrorList
	wrong := func(at *field.Path, value, bound *apiresource.Quantity, why string) {
		errs = append(errs, field.Invalid(at, value.String(), why+bound.String()))
	}
	if r.Min.Cmp(most) > 0 {
		wrong(least, r.Min, &most, "min is larger than capacity value: ")
	}
	if byDefault.Cmp(*r.Min) < 0 {
		wrong(path.Child("default"), &byDefault, r.Min, "default is less than min: ")
	}
	if r.Max != nil {
		if r.Min.Cmp(*r.Max) > 0 {
			wrong(greatest, r.Min, r.Max, "min is larger than max: ")
		}
		if r.Max.Cmp(most) > 0 {
			wrong(greatest, r.Max, &most, "max is larger than capacity value: ")
		}
		if byDefault.Cmp(*r.Max) > 0 {
			wrong(path.Child("default"), &byDefault, r.Max, "default is more than max: ")
		}
	}
	if r.Step != nil {
		errs = append(errs, rangeStep(byDefault, most, r, path)...)
	}
	return errs
}

func rangeStep(byDefault, most apiresource.Quantity, r *resourcev1.CapacityRequestPolicyRange, path *field.Path) field.ErrorList {
	at := path.Child("step")
	if r.Step.Sign() <= 0 {
		return field.ErrorList{field.Invalid(at, r.Step.String(), "must be greater than zero")}
	}
	var errs field.ErrorList
	first := r.Min.DeepCopy()
	first.Add(*r.Step)
	if first.Cmp(most) > 0 {
		errs = append(errs, field.Invalid(at, r.Step.String(), fmt.Sprintf("one step %s is larger than capacity value: %s", first.String(), most.String())))
	}
	// The arithmetic below requires numbers from zero to the maximum int64.
	unsafe := false
	for _, bound := range []struct {
		name string
		q    *apiresource.Quantity
	}{{"default", &byDefault}, {"min", r.Min}, {"max", r.Max}, {"step", r.Step}} {
		if bound.q != nil {
			wrong := wholeNumber(*bound.q, path.Child(bound.name))
			errs, unsafe = append(errs, wrong...), unsafe || len(wrong) > 0
		}
	}
	if unsafe {
		return errs
	}
	for _, q := range []*apiresource.Quantity{&byDefault, r.Max} {
		if q != nil && (q.Value()-r.Min.Value())%r.Step.Value() != 0 {
			errs = append(errs, field.Invalid(at, q.String(), fmt.Sprintf("value is not a multiple of a given step (%s) from (%s)", r.Step.String(), r.Min.String())))
		}
	}
	return errs
}

func wholeNumber(q apiresource.Quantity, path *field.Path) field.ErrorList {
	if q.Sign() < 0 {
		return field.ErrorList{field.Invalid(path, q.String(), validation.IsNegativeErrorMsg)}
	}
	if q.CmpInt64(math.MaxInt64) > 0 {
		return field.ErrorList{field.Invalid(path, q.String(), "must not be larger than 9223372036854775807")}
	}
	return nil
}

// maxValidValues is the maximum number of values in a policy.
const maxValidValues = 10
