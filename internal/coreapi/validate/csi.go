package validate

import (
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxDriverName = 63
	MaxNodeID     = 256
	// minAllocatableSeconds is how often a driver may at most be asked how many volumes a node takes.
	MinAllocatableSeconds = 10
)

// DriverName checks the name by which a storage driver is called.
func DriverName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(name) > maxDriverName {
		errs = append(errs, field.TooLong(path, "", maxDriverName))
	}
	return append(errs, Invalid(path, name, utilvalidation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}
