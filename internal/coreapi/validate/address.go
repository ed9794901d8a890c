package validate

import (
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// ordinaryIP refuses addresses that mean something else to whoever dials them: a proxy that sends a client's request to
// its own loopback or to the cloud's metadata service (169.254.169.254) hands out what only the proxy may see.
func ordinaryIP(value string, path *field.Path) field.ErrorList {
	ip := netutils.ParseIPSloppy(value) // how readers of old objects understand leading zeros
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

// ipList checks a list of addresses. Those that an older object already had are not judged by today's stricter reading
// of IP addresses.
func ipList(values, stored []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, value := range values {
		if bad := utilvalidation.IsValidIPForLegacyField(path.Index(i), value, true, stored); len(bad) > 0 {
			errs = append(errs, bad...)
			continue
		}
		errs = append(errs, ordinaryIP(value, path.Index(i))...)
	}
	return errs
}
