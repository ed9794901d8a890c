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

// sysctlName matches a path of kernel parameters with dots or slashes.
var sysctlName = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)

const maxSysctlName = 253

// podSecurity checks the format of the security fields. Policies decide which settings are allowed.
func podSecurity(s *corev1.PodSpec, spec *field.Path) field.ErrorList {
	errs := hostNamespaces(s, spec)
	c, path := s.SecurityContext, spec.Child("securityContext")
	if c == nil {
		return errs
	}
	errs = append(errs, userID(c.RunAsUser, path.Child("runAsUser"))...)
	errs = append(errs, groupID(c.RunAsGroup, path.Child("runAsGroup"))...)
	errs = append(errs, groupID(c.FSGroup, path.Child("fsGroup"))...)
	errs = append(errs, Each(c.SupplementalGroups, path.Child("supplementalGroups"), groupID)...)
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
	if s.HostPID && IsTrue(s.ShareProcessNamespace) {
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
		if IsTrue(c.Privileged) {
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

// maxProfilePath is the maximum length of a path in Linux, without the terminating null byte.
const maxProfilePath = 4095

// AppArmor checks a profile. Nil is valid.
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

// operatingSystem forbids fields that do not apply to the pod's operating system.
func operatingSystem(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := hostProcesses(s, path)
	switch {
	case s.OS == nil:
		return errs
	case s.OS.Name == "":
		return append(errs, field.Required(path.Child("os", "name"), ""))
	case s.OS.Name == corev1.Linux:
		return append(errs, linuxOnly(s, path)...)
	case s.OS.Name == corev1.Windows:
		return append(errs, windowsOnly(s, path)...)
	}
	return append(errs, OneOf(s.OS.Name, path.Child("os"), corev1.Linux, corev1.Windows)...)
}

func linuxOnly(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	const why = "windows options cannot be set for a linux pod"
	var errs field.ErrorList
	if s.SecurityContext != nil && s.SecurityContext.WindowsOptions != nil {
		errs = append(errs, field.Forbidden(path.Child("securityContext", "windowsOptions"), why))
	}
	EachContainer(s, path, func(c *corev1.Container, at *field.Path) {
		if c.SecurityContext != nil && c.SecurityContext.WindowsOptions != nil {
			errs = append(errs, field.Forbidden(at.Child("securityContext", "windowsOptions"), why))
		}
	})
	return errs
}

func windowsOnly(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	forbid := func(set bool, at *field.Path) {
		if set {
			errs = append(errs, field.Forbidden(at, "cannot be set for a windows pod"))
		}
	}
	forbid(s.HostUsers != nil, path.Child("hostUsers"))
	forbid(s.HostPID, path.Child("hostPID"))
	forbid(s.HostIPC, path.Child("hostIPC"))
	forbid(s.ShareProcessNamespace != nil, path.Child("shareProcessNamespace"))
	if c, at := s.SecurityContext, path.Child("securityContext"); c != nil {
		forbid(c.AppArmorProfile != nil, at.Child("appArmorProfile"))
		forbid(c.SELinuxOptions != nil, at.Child("seLinuxOptions"))
		forbid(c.SeccompProfile != nil, at.Child("seccompProfile"))
		forbid(c.FSGroup != nil, at.Child("fsGroup"))
		forbid(c.FSGroupChangePolicy != nil, at.Child("fsGroupChangePolicy"))
		forbid(len(c.Sysctls) > 0, at.Child("sysctls"))
		forbid(c.RunAsUser != nil, at.Child("runAsUser"))
		forbid(c.RunAsGroup != nil, at.Child("runAsGroup"))
		forbid(c.SupplementalGroups != nil, at.Child("supplementalGroups"))
		forbid(c.SupplementalGroupsPolicy != nil, at.Child("supplementalGroupsPolicy"))
		forbid(c.SELinuxChangePolicy != nil, at.Child("seLinuxChangePolicy"))
	}
	EachContainer(s, path, func(container *corev1.Container, at *field.Path) {
		c := container.SecurityContext
		if c == nil {
			return
		}
		at = at.Child("securityContext")
		forbid(c.AppArmorProfile != nil, at.Child("appArmorProfile"))
		forbid(c.SELinuxOptions != nil, at.Child("seLinuxOptions"))
		forbid(c.SeccompProfile != nil, at.Child("seccompProfile"))
		forbid(c.Capabilities != nil, at.Child("capabilities"))
		forbid(c.ReadOnlyRootFilesystem != nil, at.Child("readOnlyRootFilesystem"))
		forbid(c.Privileged != nil, at.Child("privileged"))
		forbid(c.AllowPrivilegeEscalation != nil, at.Child("allowPrivilegeEscalation"))
		forbid(c.ProcMount != nil, at.Child("procMount"))
		forbid(c.RunAsUser != nil, at.Child("runAsUser"))
		forbid(c.RunAsGroup != nil, at.Child("runAsGroup"))
	})
	return errs
}

// hostProcesses checks Windows host processes: either all containers of a pod are host processes, on the host's network, or
// none is.
func hostProcesses(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	var ofPod *bool
	if s.SecurityContext != nil && s.SecurityContext.WindowsOptions != nil {
		ofPod = s.SecurityContext.WindowsOptions.HostProcess
	}
	var errs field.ErrorList
	all, outside := 0, 0
	EachContainer(s, path, func(c *corev1.Container, at *field.Path) {
		all++
		own := ofPod
		if c.SecurityContext != nil && c.SecurityContext.WindowsOptions != nil && c.SecurityContext.WindowsOptions.HostProcess != nil {
			own = c.SecurityContext.WindowsOptions.HostProcess
		}
		if ofPod != nil && *own != *ofPod {
			errs = append(errs, field.Invalid(at.Child("securityContext", "windowsOptions", "hostProcess"), *own,
				fmt.Sprintf("pod hostProcess value must be identical if both are specified, was %v", *ofPod)))
		}
		if IsTrue(own) {
			outside++
		}
	})
	if outside == 0 {
		return errs
	}
	if outside != all {
		errs = append(errs, field.Invalid(path, "", "If pod contains any hostProcess containers then all containers must be HostProcess containers"))
	}
	if !s.HostNetwork {
		errs = append(errs, field.Invalid(path.Child("hostNetwork"), false, "hostNetwork must be true if pod contains any hostProcess containers"))
	}
	return errs
}

var (
	controlCharacters = regexp.MustCompile(`[[:cntrl:]]+`)
	netBIOSDomain     = regexp.MustCompile(`^[^\\/:\*\?"<>|\.][^\\/:\*\?"<>|]{0,14}$`)
	dnsDomain         = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9-]{0,62}(\.[a-zA-Z0-9][a-zA-Z0-9-]{0,62})*$`)
	onlyDotsOrSpaces  = regexp.MustCompile(`^[\. ]+$`)
	notInUserNames    = regexp.MustCompile(`["/\\:;|=,\+\*\?<>@\[\]]`)
)

const (
	maxCredentialSpec = 64 << 10
	maxWindowsDomain  = 256
	maxWindowsUser    = 104
)

func windowsOptions(o *corev1.WindowsSecurityContextOptions, path *field.Path) field.ErrorList {
	if o == nil {
		return nil
	}
	var errs field.ErrorList
	if o.GMSACredentialSpecName != nil {
		errs = append(errs, Invalid(path.Child("gmsaCredentialSpecName"), *o.GMSACredentialSpecName, utilvalidation.IsDNS1123Subdomain(*o.GMSACredentialSpecName))...)
	}
	if o.GMSACredentialSpec != nil {
		switch at, size := path.Child("gmsaCredentialSpec"), len(*o.GMSACredentialSpec); {
		case size == 0:
			errs = append(errs, field.Invalid(at, *o.GMSACredentialSpec, "gmsaCredentialSpec cannot be an empty string"))
		case size > maxCredentialSpec:
			errs = append(errs, field.Invalid(at, *o.GMSACredentialSpec, "gmsaCredentialSpec size must be under 64 KiB"))
		}
	}
	if o.RunAsUserName != nil {
		errs = append(errs, windowsUser(*o.RunAsUserName, path.Child("runAsUserName"))...)
	}
	return errs
}

func windowsUser(name string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	refuse := func(bad bool, why string) {
		if bad {
			errs = append(errs, field.Invalid(path, name, why))
		}
	}
	parts := strings.Split(name, `\`)
	switch {
	case name == "":
		refuse(true, "runAsUserName cannot be an empty string")
		return errs
	case controlCharacters.MatchString(name):
		refuse(true, "runAsUserName cannot contain control characters")
		return errs
	case len(parts) > 2:
		refuse(true, "runAsUserName cannot contain more than one backslash")
		return errs
	}
	user := parts[len(parts)-1]
	if len(parts) == 2 {
		refuse(len(parts[0]) >= maxWindowsDomain, fmt.Sprintf("runAsUserName's Domain length must be under %d characters", maxWindowsDomain))
		refuse(!netBIOSDomain.MatchString(parts[0]) && !dnsDomain.MatchString(parts[0]), "runAsUserName's Domain doesn't match the NetBios nor the DNS format")
	}
	refuse(user == "", "runAsUserName's User cannot be empty")
	refuse(len(user) > maxWindowsUser, fmt.Sprintf("runAsUserName's User length must not be longer than %d characters", maxWindowsUser))
	refuse(onlyDotsOrSpaces.MatchString(user), "runAsUserName's User cannot contain only periods or spaces")
	refuse(notInUserNames.MatchString(user), `runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]`)
	return errs
}
