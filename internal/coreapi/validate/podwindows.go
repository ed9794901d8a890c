package validate

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// operatingSystem forbids what the named system does not know.
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

// hostProcesses are Windows containers that are none: all of a pod's are, on the host's network, or no one is.
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
		if Frozen(own) {
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
