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

// FieldsOf are numbers by the names of their fields.
type FieldsOf map[string]int64

// Naturals checks several fields of one struct, in the order of their names.
func Naturals(path *field.Path, fields FieldsOf) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		errs = append(errs, validation.ValidateNonnegativeField(fields[name], path.Child(name))...)
	}
	return errs
}

// Given is an optional number, 0 when it is absent.
func Given[T int32 | int64](n *T) int64 {
	if n == nil {
		return 0
	}
	return int64(*n)
}

func RequiredCount(n *int32, path *field.Path) field.ErrorList {
	if n == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	return validation.ValidateNonnegativeField(int64(*n), path)
}

// Counts are numbers that must not be greater than another one.
type Counts []struct {
	Name  string
	Value int32
}

func Bounded(path *field.Path, limit int32, of string, fields Counts) field.ErrorList {
	var errs field.ErrorList
	for _, f := range fields {
		if f.Value > limit {
			errs = append(errs, field.Invalid(path.Child(f.Name), f.Value, "cannot be greater than "+of))
		}
	}
	return errs
}

// Share is a number of pods or a percentage of them.
func Share(v *intstr.IntOrString, path *field.Path) field.ErrorList {
	if v == nil {
		return nil
	}
	if v.Type == intstr.Int {
		return validation.ValidateNonnegativeField(int64(v.IntVal), path)
	}
	return Invalid(path, *v, utilvalidation.IsValidPercent(v.StrVal))
}

func NotAboveAll(v *intstr.IntOrString, path *field.Path) field.ErrorList {
	if v == nil || v.Type != intstr.String || len(utilvalidation.IsValidPercent(v.StrVal)) > 0 || AmountOf(v) <= 100 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *v, "must not be greater than 100%")}
}

// AmountOf is the number of a share, of pods or of percent: what matters here is whether it is nothing.
func AmountOf(v *intstr.IntOrString) int {
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
