package validate

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// Invalid converts the messages of a string check of k8s.io/apimachinery to errors.
func Invalid(path *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, message := range messages {
		errs = append(errs, field.Invalid(path, value, message))
	}
	return errs
}

func DnsLabel(value string, path *field.Path) field.ErrorList {
	return Invalid(path, value, utilvalidation.IsDNS1123Label(value))
}

func DnsSubdomain(value string, path *field.Path) field.ErrorList {
	return Invalid(path, value, utilvalidation.IsDNS1123Subdomain(value))
}

func PortNumber(port int32, path *field.Path) field.ErrorList {
	return Invalid(path, port, utilvalidation.IsValidPortNum(int(port)))
}

// OneOf refuses a value that is not in the list. Required also refuses an empty one with a separate error.
func OneOf[T ~string](value T, path *field.Path, allowed ...T) field.ErrorList {
	for _, v := range allowed {
		if value == v {
			return nil
		}
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

func Required[T ~string](value T, path *field.Path, allowed ...T) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return OneOf(value, path, allowed...)
}

func Protocol(p corev1.Protocol, path *field.Path) field.ErrorList {
	return Required(p, path, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
}

func Immutable(value, old any, path *field.Path) field.ErrorList {
	return validation.ValidateImmutableField(value, old, path)
}

// NamedNumbers maps field names to numbers.
type NamedNumbers map[string]int64

// NonNegative checks several fields of one struct, in the order of their names.
func NonNegative(path *field.Path, fields NamedNumbers) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		errs = append(errs, validation.ValidateNonnegativeField(fields[name], path.Child(name))...)
	}
	return errs
}

// OrZero returns an optional number, or 0 if it is nil.
func OrZero[T int32 | int64](n *T) int64 {
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

// NamedCounts lists fields with a common upper bound.
type NamedCounts []struct {
	Name  string
	Value int32
}

func Bounded(path *field.Path, limit int32, of string, fields NamedCounts) field.ErrorList {
	var errs field.ErrorList
	for _, f := range fields {
		if f.Value > limit {
			errs = append(errs, field.Invalid(path.Child(f.Name), f.Value, "cannot be greater than "+of))
		}
	}
	return errs
}

// IntOrPercent checks a number of pods or a percentage of them.
func IntOrPercent(v *intstr.IntOrString, path *field.Path) field.ErrorList {
	if v == nil {
		return nil
	}
	if v.Type == intstr.Int {
		return validation.ValidateNonnegativeField(int64(v.IntVal), path)
	}
	return Invalid(path, *v, utilvalidation.IsValidPercent(v.StrVal))
}

func AtMost100Percent(v *intstr.IntOrString, path *field.Path) field.ErrorList {
	if v == nil || v.Type != intstr.String || len(utilvalidation.IsValidPercent(v.StrVal)) > 0 || IntOrPercentValue(v) <= 100 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *v, "must not be greater than 100%")}
}

// IntOrPercentValue returns the number of pods or the percentage, without distinguishing the two. It returns 0 for invalid
// values.
func IntOrPercentValue(v *intstr.IntOrString) int {
	if v == nil {
		return 0
	}
	if v.Type == intstr.Int {
		return int(v.IntVal)
	}
	n, err := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%"))
	if err != nil {
		return 0 // IntOrPercent has refused it
	}
	return n
}

func IsTrue(flag *bool) bool { return flag != nil && *flag }

func Selector(s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path)
}

// EndpointIP refuses addresses with a different meaning for the client that dials them. A proxy that forwards a request to its
// own loopback address or to the cloud's metadata service (169.254.169.254) would expose data that only the proxy may access.
func EndpointIP(value string, path *field.Path) field.ErrorList {
	ip := netutils.ParseIPSloppy(value) // as readers of old objects parse leading zeros
	switch {
	case ip == nil:
		return field.ErrorList{field.Invalid(path, value, "must be a valid IP address")}
	case ip.IsUnspecified():
		return field.ErrorList{field.Invalid(path, value, "may not be unspecified ("+value+")")}
	case ip.IsLoopback():
		return field.ErrorList{field.Invalid(path, value, "may not be in the loopback range (127.0.0.0/8, ::1/128)")}
	case ip.IsLinkLocalUnicast():
		return field.ErrorList{field.Invalid(path, value, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")}
	case ip.IsLinkLocalMulticast():
		return field.ErrorList{field.Invalid(path, value,
			"may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")}
	}
	return nil
}

func PortOrName(port intstr.IntOrString, path *field.Path) field.ErrorList {
	if port.Type == intstr.String {
		return Invalid(path, port.StrVal, utilvalidation.IsValidPortName(port.StrVal))
	}
	return PortNumber(port.IntVal, path)
}

func Qualified(value string, path *field.Path) field.ErrorList {
	return Invalid(path, value, utilvalidation.IsQualifiedName(value))
}

// SignerName checks a name of the form example.com/name. The part after the slash may be namespace.name for a namespaced
// object.
func SignerName(name string, path *field.Path) field.ErrorList {
	const maxDomain, maxPath = utilvalidation.DNS1123SubdomainMaxLength,
		utilvalidation.DNS1123SubdomainMaxLength + utilvalidation.DNS1123LabelMaxLength + 1
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	domain, rest, found := strings.Cut(name, "/")
	if !found || strings.Contains(rest, "/") {
		return field.ErrorList{field.Invalid(path, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")}
	}
	var errs field.ErrorList
	if len(domain) > maxDomain {
		errs = append(errs, field.TooLong(path, "", maxDomain))
	}
	errs = append(errs, signerPart(domain, path, utilvalidation.IsDNS1123Label)...)
	if !strings.Contains(domain, ".") {
		errs = append(errs, field.Invalid(path, domain, "should be a domain with at least two segments separated by dots"))
	}
	errs = append(errs, signerPart(rest, path, utilvalidation.IsDNS1123Subdomain)...)
	if most := maxDomain + maxPath + 1; len(name) > most {
		errs = append(errs, field.TooLong(path, "", most))
	}
	return errs
}

// signerPart reports the errors of the first invalid label.
func signerPart(part string, path *field.Path, check func(string) []string) field.ErrorList {
	for label := range strings.SplitSeq(part, ".") {
		var errs field.ErrorList
		for _, message := range check(label) {
			errs = append(errs, field.Invalid(path, part, fmt.Sprintf("validating label %q: %s", label, message)))
		}
		if len(errs) > 0 {
			return errs
		}
	}
	return nil
}

// Each returns the errors of check for the items of the list at path.
func Each[T any](items []T, path *field.Path, check func(*T, *field.Path) field.ErrorList) field.ErrorList {
	var errs field.ErrorList
	for i := range items {
		errs = append(errs, check(&items[i], path.Index(i))...)
	}
	return errs
}

// EachValue is Each for items that are passed by value.
func EachValue[T any](items []T, path *field.Path, check func(T, *field.Path) field.ErrorList) field.ErrorList {
	return Each(items, path, func(item *T, at *field.Path) field.ErrorList { return check(*item, at) })
}
