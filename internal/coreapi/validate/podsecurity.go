package validate

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// sysctlName is a path of kernel parameters with dots or slashes.
var sysctlName = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)

const maxSysctlName = 253

// podSecurity checks what a pod may do to its node. Whether it may at all is for policies to say.
func podSecurity(s *corev1.PodSpec, spec *field.Path) field.ErrorList {
	errs := hostNamespaces(s, spec)
	c, path := s.SecurityContext, spec.Child("securityContext")
	if c == nil {
		return errs
	}
	errs = append(errs, userID(c.RunAsUser, path.Child("runAsUser"))...)
	errs = append(errs, groupID(c.RunAsGroup, path.Child("runAsGroup"))...)
	errs = append(errs, groupID(c.FSGroup, path.Child("fsGroup"))...)
	for i := range c.SupplementalGroups {
		errs = append(errs, groupID(&c.SupplementalGroups[i], path.Child("supplementalGroups").Index(i))...)
	}
	seen := sets.New[string]()
	for i, sysctl := range c.Sysctls {
		at := path.Child("sysctls").Index(i).Child("name")
		switch {
		case sysctl.Name == "":
			errs = append(errs, field.Required(at, ""))
		case len(sysctl.Name) > maxSysctlName || !sysctlName.MatchString(sysctl.Name):
			errs = append(errs, field.Invalid(at, sysctl.Name, fmt.Sprintf("must have at most %d characters and match regex %s", maxSysctlName, sysctlName)))
		case seen.Has(sysctl.Name):
			errs = append(errs, field.Duplicate(at, sysctl.Name))
		}
		seen.Insert(sysctl.Name)
	}
	if c.FSGroupChangePolicy != nil {
		errs = append(errs, OneOf(*c.FSGroupChangePolicy, path.Child("fsGroupChangePolicy"), corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch)...)
	}
	if c.SupplementalGroupsPolicy != nil {
		errs = append(errs, OneOf(*c.SupplementalGroupsPolicy, path.Child("supplementalGroupsPolicy"),
			corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)...)
	}
	if c.SELinuxChangePolicy != nil {
		errs = append(errs, OneOf(*c.SELinuxChangePolicy, path.Child("seLinuxChangePolicy"),
			corev1.SELinuxChangePolicyMountOption, corev1.SELinuxChangePolicyRecursive)...)
	}
	errs = append(errs, seccomp(c.SeccompProfile, path.Child("seccompProfile"))...)
	errs = append(errs, AppArmor(c.AppArmorProfile, path.Child("appArmorProfile"))...)
	return append(errs, windowsOptions(c.WindowsOptions, path.Child("windowsOptions"))...)
}

func hostNamespaces(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.HostPID && Frozen(s.ShareProcessNamespace) {
		errs = append(errs, field.Invalid(path.Child("shareProcessNamespace"), true, "ShareProcessNamespace and HostPID cannot both be enabled"))
	}
	if s.HostUsers == nil || *s.HostUsers {
		return errs
	}
	const why = "when `hostUsers` is false"
	if s.HostNetwork {
		errs = append(errs, field.Forbidden(path.Child("hostNetwork"), why))
	}
	if s.HostPID {
		errs = append(errs, field.Forbidden(path.Child("HostPID"), why))
	}
	if s.HostIPC {
		errs = append(errs, field.Forbidden(path.Child("HostIPC"), why))
	}
	EachContainer(s, path, func(c *corev1.Container, at *field.Path) {
		if len(c.VolumeDevices) > 0 {
			errs = append(errs, field.Forbidden(at.Child("volumeDevices"), why))
		}
	})
	return errs
}

func userID(id *int64, path *field.Path) field.ErrorList {
	if id == nil {
		return nil
	}
	return Invalid(path, *id, utilvalidation.IsValidUserID(*id))
}

func groupID(id *int64, path *field.Path) field.ErrorList {
	if id == nil {
		return nil
	}
	return Invalid(path, *id, utilvalidation.IsValidGroupID(*id))
}

func containerSecurity(c *corev1.SecurityContext, hostUsers bool, path *field.Path) field.ErrorList {
	if c == nil {
		return nil
	}
	errs := userID(c.RunAsUser, path.Child("runAsUser"))
	errs = append(errs, groupID(c.RunAsGroup, path.Child("runAsGroup"))...)
	if c.ProcMount != nil {
		errs = append(errs, OneOf(*c.ProcMount, path.Child("procMount"), corev1.DefaultProcMount, corev1.UnmaskedProcMount)...)
		if hostUsers && *c.ProcMount == corev1.UnmaskedProcMount {
			errs = append(errs, field.Invalid(path.Child("procMount"), *c.ProcMount, "`hostUsers` must be false to use `Unmasked`"))
		}
	}
	if c.AllowPrivilegeEscalation != nil && !*c.AllowPrivilegeEscalation {
		if Frozen(c.Privileged) {
			errs = append(errs, field.Invalid(path, c, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))
		}
		if c.Capabilities != nil {
			for _, capability := range c.Capabilities.Add {
				if capability == "CAP_SYS_ADMIN" {
					errs = append(errs, field.Invalid(path, c, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"))
				}
			}
		}
	}
	errs = append(errs, seccomp(c.SeccompProfile, path.Child("seccompProfile"))...)
	errs = append(errs, windowsOptions(c.WindowsOptions, path.Child("windowsOptions"))...)
	return append(errs, AppArmor(c.AppArmorProfile, path.Child("appArmorProfile"))...)
}

func seccomp(p *corev1.SeccompProfile, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	if p.Type == "" {
		return field.ErrorList{field.Required(path.Child("type"), "type is required when seccompProfile is set")}
	}
	errs := OneOf(p.Type, path.Child("type"), corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)
	at := path.Child("localhostProfile")
	switch local := p.Type == corev1.SeccompProfileTypeLocalhost; {
	case local && p.LocalhostProfile == nil:
		errs = append(errs, field.Required(at, "must be set when seccomp type is Localhost"))
	case local:
		errs = append(errs, descendingPath(*p.LocalhostProfile, at)...)
	case p.LocalhostProfile != nil:
		errs = append(errs, field.Invalid(at, p, "can only be set when seccomp type is Localhost"))
	}
	return errs
}

// maxProfilePath is the longest path that Linux takes, without its end.
const maxProfilePath = 4095

// AppArmor checks a profile. Nil is good.
func AppArmor(p *corev1.AppArmorProfile, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	at := path.Child("localhostProfile")
	switch p.Type {
	case "":
		return field.ErrorList{field.Required(path.Child("type"), "type is required when appArmorProfile is set")}
	case corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined:
		if p.LocalhostProfile != nil {
			return field.ErrorList{field.Invalid(at, *p.LocalhostProfile, "can only be set when AppArmor type is Localhost")}
		}
		return nil
	case corev1.AppArmorProfileTypeLocalhost:
	default:
		return OneOf(p.Type, path.Child("type"), corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined)
	}
	const missing = "must be set when AppArmor type is Localhost"
	if p.LocalhostProfile == nil {
		return field.ErrorList{field.Required(at, missing)}
	}
	var errs field.ErrorList
	switch trimmed := strings.TrimSpace(*p.LocalhostProfile); {
	case trimmed != *p.LocalhostProfile:
		errs = append(errs, field.Invalid(at, *p.LocalhostProfile, "must not be padded with whitespace"))
	case trimmed == "":
		errs = append(errs, field.Required(at, missing))
	}
	if len(*p.LocalhostProfile) > maxProfilePath {
		errs = append(errs, field.TooLong(at, "", maxProfilePath))
	}
	return errs
}
