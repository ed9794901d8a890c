package storage

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/validate"
)

const (
	maxNodeID = 256
	// minAllocatableSeconds is the minimum interval between two queries for the number of volumes of a node.
	minAllocatableSeconds = 10
)

const (
	maxParameterBytes   = 256 << 10 // of all parameters of a class, or the metadata of an attachment
	maxParameters       = 512
	maxVolumeErrorBytes = 1024
)

func provisioner(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return validate.Qualified(strings.ToLower(name), path)
}

func parameters(values map[string]string, path *field.Path) field.ErrorList {
	if len(values) > maxParameters {
		return field.ErrorList{field.TooLong(path, "", maxParameters)}
	}
	var errs field.ErrorList
	if _, nameless := values[""]; nameless {
		errs = append(errs, field.Invalid(path, "", "field can not be empty."))
	}
	if bytesOf(values) > maxParameterBytes {
		errs = append(errs, field.TooLong(path, "", maxParameterBytes))
	}
	return errs
}

func bytesOf(values map[string]string) int {
	size := 0
	for key, value := range values {
		size += len(key) + len(value)
	}
	return size
}
