package validate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

//lint:file-ignore SA1019 these rules warn about deprecated fields

// InPods describes the further use of the names of objects that create pods.
const InPods = "Pod names and hostnames"

func NameWarning(name, where string) []string {
	messages := utilvalidation.IsDNS1123Label(name)
	if len(messages) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("metadata.name: this is used in %s, which can result in surprising behavior; a DNS label is recommended: %v", where, messages)}
}

// PodWarnings returns warnings about settings of a pod that are likely mistakes. path is nil for pods themselves.
func PodWarnings(s *corev1.PodSpec, meta *metav1.ObjectMeta, path *field.Path) []string {
	spec := path.Child("spec")
	var warnings []string
	warn := func(at *field.Path, format string, args ...any) {
		warnings = append(warnings, at.String()+": "+fmt.Sprintf(format, args...))
	}
	for i, c := range s.TopologySpreadConstraints {
		if c.LabelSelector == nil {
			warn(spec.Child("topologySpreadConstraints").Index(i).Child("labelSelector"), "a null labelSelector results in matching no pod")
		}
	}
	volumeWarnings(s.Volumes, spec.Child("volumes"), warn)
	repeated(s.HostAliases, func(a corev1.HostAlias) string { return a.IP }, func(i int, ip string) {
		warn(spec.Child("hostAliases").Index(i).Child("ip"), "duplicate ip %q", ip)
	})
	secrets := spec.Child("imagePullSecrets")
	repeated(s.ImagePullSecrets, func(r corev1.LocalObjectReference) string { return r.Name }, func(i int, name string) {
		warn(secrets.Index(i).Child("name"), "duplicate name %q", name)
	})
	for i, secret := range s.ImagePullSecrets {
		if secret.Name == "" {
			warn(secrets.Index(i).Child("name"), "invalid empty name %q", "")
		}
	}
	fractions(s.Overhead, spec.Child("overhead"), warn)
	annotationWarnings(s, meta, path, warn)
	EachContainer(s, spec, func(c *corev1.Container, at *field.Path) {
		fractions(c.Resources.Limits, at.Child("resources", "limits"), warn)
		fractions(c.Resources.Requests, at.Child("resources", "requests"), warn)
		hiddenVariables(c.Env, at.Child("env"), warn)
	})
	portWarnings(s, spec, warn)
	if grace := s.TerminationGracePeriodSeconds; grace != nil && *grace < 0 {
		warn(spec.Child("terminationGracePeriodSeconds"), "must be >= 0; negative values are invalid and will be treated as 1")
	}
	return warnings
}

type warner func(at *field.Path, format string, args ...any)

func repeated[T any](list []T, key func(T) string, found func(int, string)) {
	seen := sets.New[string]()
	for i, item := range list {
		if seen.Has(key(item)) {
			found(i, key(item))
		}
		seen.Insert(key(item))
	}
}

func volumeWarnings(volumes []corev1.Volume, path *field.Path, warn warner) {
	for i, v := range volumes {
		for _, gone := range []struct {
			name string
			used bool
			says string
		}{
			{"photonPersistentDisk", v.PhotonPersistentDisk != nil, "deprecated in v1.11, non-functional in v1.16+"},
			{"gitRepo", v.GitRepo != nil, "deprecated in v1.11, and disabled by default in v1.33+"},
			{"scaleIO", v.ScaleIO != nil, "deprecated in v1.16, non-functional in v1.22+"},
			{"flocker", v.Flocker != nil, "deprecated in v1.22, non-functional in v1.25+"},
			{"storageOS", v.StorageOS != nil, "deprecated in v1.22, non-functional in v1.25+"},
			{"quobyte", v.Quobyte != nil, "deprecated in v1.22, non-functional in v1.25+"},
			{"glusterfs", v.Glusterfs != nil, "deprecated in v1.25, non-functional in v1.26+"},
			{"cephfs", v.CephFS != nil, "deprecated in v1.28, non-functional in v1.31+"},
			{"rbd", v.RBD != nil, "deprecated in v1.28, non-functional in v1.31+"},
		} {
			if gone.used {
				warn(path.Index(i).Child(gone.name), "%s", gone.says)
			}
		}
	}
}

// fractions warns about fractions of a byte. They are stored unchanged and rounded up when used (kubernetes/kubernetes#79950).
func fractions(list corev1.ResourceList, path *field.Path, warn warner) {
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if q, there := list[name]; there && q.MilliValue()%1000 != 0 {
			warn(path.Key(string(name)), "fractional byte value %q is invalid, must be an integer", q.String())
		}
	}
}

func annotationWarnings(s *corev1.PodSpec, meta *metav1.ObjectMeta, path *field.Path, warn warner) {
	annotations := path.Child("metadata", "annotations")
	if _, there := meta.Annotations[seccompPodAnnotation]; there && (s.SecurityContext == nil || s.SecurityContext.SeccompProfile == nil) {
		warn(annotations.Key(seccompPodAnnotation), `non-functional in v1.27+; use the "seccompProfile" field instead`)
	}
	EachContainer(s, nil, func(c *corev1.Container, _ *field.Path) {
		if _, there := meta.Annotations[seccompContainerPrefix+c.Name]; there && (c.SecurityContext == nil || c.SecurityContext.SeccompProfile == nil) {
			warn(annotations.Key(seccompContainerPrefix+c.Name), `non-functional in v1.27+; use the "seccompProfile" field instead`)
		}
		if _, there := meta.Annotations[AppArmorContainerPrefix+c.Name]; there && (c.SecurityContext == nil || c.SecurityContext.AppArmorProfile == nil) {
			warn(annotations.Key(AppArmorContainerPrefix+c.Name), `deprecated since v1.30; use the "appArmorProfile" field instead`)
		}
	})
}

// hiddenVariables warns about variables that are set again without a reference to the previous value: apply merges them by
// name, and may drop either (kubernetes/kubernetes#86163).
func hiddenVariables(vars []corev1.EnvVar, path *field.Path, warn warner) {
	seen := sets.New[string]()
	for i, v := range vars {
		reference := "$(" + v.Name + ")"
		if seen.Has(v.Name) && (v.ValueFrom != nil || v.Value == reference || !strings.Contains(v.Value, reference)) {
			warn(path.Index(i), "hides previous definition of %q, which may be dropped when using apply", v.Name)
		}
		seen.Insert(v.Name)
	}
}

func portWarnings(s *corev1.PodSpec, spec *field.Path, warn warner) {
	type place struct {
		at   *field.Path
		port corev1.ContainerPort
	}
	byNumber, byName := map[string][]place{}, map[string]*field.Path{}
	EachContainer(s, spec, func(c *corev1.Container, path *field.Path) {
		for i, p := range c.Ports {
			at := path.Child("ports").Index(i)
			if p.HostIP != "" && p.HostPort == 0 {
				warn(at, "hostIP set without hostPort: %+v", p)
			}
			key := fmt.Sprintf("%d/%s", p.ContainerPort, p.Protocol)
			for _, other := range byNumber[key] {
				switch {
				case p.HostIP == other.port.HostIP && p.HostPort == other.port.HostPort:
					warn(at, "duplicate port definition with %s", other.at)
				case p.HostPort == 0 || other.port.HostPort == 0:
					warn(at, "overlapping port definition with %s", other.at)
				case p.HostPort == other.port.HostPort && (p.HostIP == "") != (other.port.HostIP == ""):
					warn(at, "dangerously ambiguous port definition with %s", other.at)
				}
			}
			byNumber[key] = append(byNumber[key], place{at, p})
			if other, there := byName[p.Name]; there && p.Name != "" {
				warn(at, "duplicate port name %q with %s, services and probes that select ports by name will use %s", p.Name, other, other)
			} else if p.Name != "" {
				byName[p.Name] = at
			}
		}
	})
	for _, key := range slices.Sorted(maps.Keys(s.NodeSelector)) {
		if says, old := deprecatedNodeLabel(key); old {
			warn(spec.Child("nodeSelector").Key(key), "%s", says)
		}
	}
}

// deprecatedNodeLabel returns a warning with the replacement of a deprecated node label.
func deprecatedNodeLabel(key string) (string, bool) {
	now := map[string]string{
		"beta.kubernetes.io/arch": "kubernetes.io/arch", "beta.kubernetes.io/os": "kubernetes.io/os",
		"beta.kubernetes.io/instance-type":         "node.kubernetes.io/instance-type",
		"failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
		"failure-domain.beta.kubernetes.io/zone":   "topology.kubernetes.io/zone",
	}[key]
	if now == "" {
		return "", false
	}
	since := "v1.14"
	if !strings.HasPrefix(now, "kubernetes.io/") {
		since = "v1.17"
	}
	return fmt.Sprintf("deprecated since %s; use %q instead", since, now), true
}
