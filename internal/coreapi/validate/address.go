package validate

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// OrdinaryIP refuses addresses that mean something else to whoever dials them: a proxy that sends a client's request to
// its own loopback or to the cloud's metadata service (169.254.169.254) hands out what only the proxy may see.
func OrdinaryIP(value string, path *field.Path) field.ErrorList {
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
