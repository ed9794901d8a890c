package validate

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// fieldsOf are numbers by the names of their fields.
type fieldsOf map[string]int64

// naturals checks several fields of one struct, in the order of their names.
func naturals(path *field.Path, fields fieldsOf) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		errs = append(errs, validation.ValidateNonnegativeField(fields[name], path.Child(name))...)
	}
	return errs
}

// given is an optional number, 0 when it is absent.
func given[T int32 | int64](n *T) int64 {
	if n == nil {
		return 0
	}
	return int64(*n)
}

func requiredCount(n *int32, path *field.Path) field.ErrorList {
	if n == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	return validation.ValidateNonnegativeField(int64(*n), path)
}

// counts are numbers that must not be greater than another one.
type counts []struct {
	name  string
	value int32
}

func bounded(path *field.Path, limit int32, of string, fields counts) field.ErrorList {
	var errs field.ErrorList
	for _, f := range fields {
		if f.value > limit {
			errs = append(errs, field.Invalid(path.Child(f.name), f.value, "cannot be greater than "+of))
		}
	}
	return errs
}

// neverLess is for counters that only go up: collisions of generated names.
func neverLess(next, old *int32, path *field.Path) field.ErrorList {
	if given(next) >= given(old) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, int32(given(next)), "cannot be decremented")}
}

// share is a number of pods or a percentage of them.
func share(v *intstr.IntOrString, path *field.Path) field.ErrorList {
	if v == nil {
		return nil
	}
	if v.Type == intstr.Int {
		return validation.ValidateNonnegativeField(int64(v.IntVal), path)
	}
	return invalid(path, *v, utilvalidation.IsValidPercent(v.StrVal))
}

func notAboveAll(v *intstr.IntOrString, path *field.Path) field.ErrorList {
	if v == nil || v.Type != intstr.String || len(utilvalidation.IsValidPercent(v.StrVal)) > 0 || amountOf(v) <= 100 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *v, "must not be greater than 100%")}
}

// amountOf is the number of a share, of pods or of percent: what matters here is whether it is nothing.
func amountOf(v *intstr.IntOrString) int {
	if v == nil {
		return 0
	}
	if v.Type == intstr.Int {
		return int(v.IntVal)
	}
	n, err := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%"))
	if err != nil {
		return 0 // share has refused it
	}
	return n
}
