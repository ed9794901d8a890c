package resource

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/validate"
)

// Origins of errors, which identify handwritten errors that the tags report too.
const (
	originLabel     = "format=k8s-short-name"
	originSubdomain = "format=k8s-long-name"
	originDriver    = "format=k8s-long-name-caseless"
	originPool      = "format=k8s-resource-pool-name"
	originQualified = "format=k8s-resource-fully-qualified-name"
	originUID       = "format=k8s-uuid"
	originImmutable = "immutable"
	originUpdate    = "update"
	originUnion     = "union"
	originMaxBytes  = "maxBytes"
	originMaxLength = "maxLength"
	originExtended  = "format=k8s-extended-resource-name"
)

func label(name string, path *field.Path) field.ErrorList {
	return validate.DnsLabel(name, path).WithOrigin(originLabel)
}

// className requires the name of a device class.
func className(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return validate.DnsSubdomain(name, path).WithOrigin(originSubdomain)
}

// driverName allows capital letters, like the name of a storage driver.
func driverName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(name) > resourcev1.DriverNameMaxLength {
		errs = append(errs, field.TooLong(path, "", resourcev1.DriverNameMaxLength))
	}
	return append(errs, validate.Invalid(path, name, utilvalidation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}

// coveredDriverName is driverName for fields with tags that contain the same rules.
func coveredDriverName(name string, path *field.Path) field.ErrorList {
	errs := driverName(name, path)
	for _, err := range errs {
		switch err.Type {
		case field.ErrorTypeTooLong:
			err.Origin = originMaxLength
		case field.ErrorTypeInvalid:
			err.Origin = originDriver
		}
	}
	return covered(errs)
}

func poolName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(name) > resourcev1.PoolNameMaxLength {
		errs = append(errs, field.TooLong(path, "", resourcev1.PoolNameMaxLength))
	}
	for part := range strings.SplitSeq(name, "/") {
		errs = append(errs, validate.DnsSubdomain(part, path)...)
	}
	return errs.WithOrigin(originPool)
}

func nodeName(name string, path *field.Path) field.ErrorList {
	return validate.Invalid(path, name, validation.NameIsDNSSubdomain(name, false))
}

func uid(value string, path *field.Path) field.ErrorList {
	const normalized = 36
	var errs field.ErrorList
	if err := uuid.Validate(value); err != nil {
		errs = append(errs, field.Invalid(path, value, fmt.Sprintf("error validating uid: %v", err)))
	} else if len(value) != normalized || value != strings.ToLower(value) {
		errs = append(errs, field.Invalid(path, value,
			"uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters"))
	}
	return errs.WithOrigin(originUID)
}

func identifier(id string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(id) > resourcev1.DeviceMaxIDLength {
		errs = append(errs, field.TooLong(path, "", resourcev1.DeviceMaxIDLength))
	}
	return append(errs, validate.Invalid(path, id, content.IsCIdentifier(id))...)
}

// qualifiedName checks an identifier with an optional domain and slash before it. As in upstream, names with more slashes are
// accepted.
func qualifiedName(name resourcev1.QualifiedName, path *field.Path) field.ErrorList {
	parts := strings.Split(string(name), "/")
	switch len(parts) {
	case 1:
		return identifier(parts[0], path)
	case 2:
		var errs field.ErrorList
		if parts[0] == "" {
			errs = append(errs, field.Invalid(path, "", "the domain must not be empty"))
		} else {
			errs = append(errs, driverName(parts[0], path)...)
		}
		if parts[1] == "" {
			return append(errs, field.Invalid(path, "", "the name must not be empty"))
		}
		return append(errs, identifier(parts[1], path)...)
	}
	return nil
}

func fullyQualifiedName(name resourcev1.FullyQualifiedName, path *field.Path) field.ErrorList {
	errs := qualifiedName(resourcev1.QualifiedName(name), path)
	if !strings.Contains(string(name), "/") {
		errs = append(errs, field.Invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash"))
	}
	return errs.WithOrigin(originQualified)
}
