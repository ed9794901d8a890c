package validate

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func containers(s *corev1.PodSpec, mountable sets.Set[string], path *field.Path) field.ErrorList {
	var errs field.ErrorList
	main, inits := path.Child("containers"), path.Child("initContainers")
	if len(s.Containers) == 0 {
		errs = append(errs, field.Required(main, ""))
	}
	names := sets.New[string]()
	check := func(list []corev1.Container, path *field.Path) {
		for i := range list {
			c, at := &list[i], path.Index(i)
			if names.Has(c.Name) {
				errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
			}
			names.Insert(c.Name)
			errs = append(errs, container(c, s.HostNetwork, mountable, at)...)
		}
	}
	check(s.InitContainers, inits)
	check(s.Containers, main)
	return append(errs, hostPorts(s.Containers, main)...)
}

func container(c *corev1.Container, hostNetwork bool, mountable sets.Set[string], path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	} else {
		errs = append(errs, dnsLabel(c.Name, path.Child("name"))...)
	}
	errs = append(errs, image(c.Image, path.Child("image"))...)
	errs = append(errs, required(c.ImagePullPolicy, path.Child("imagePullPolicy"), corev1.PullAlways,
		corev1.PullIfNotPresent, corev1.PullNever)...)
	errs = append(errs, required(c.TerminationMessagePolicy, path.Child("terminationMessagePolicy"),
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, containerPorts(c.Ports, hostNetwork, path.Child("ports"))...)
	errs = append(errs, environment(c.Env, path.Child("env"))...)
	errs = append(errs, mounts(c.VolumeMounts, mountable, path.Child("volumeMounts"))...)
	errs = append(errs, containerResources(&c.Resources, path.Child("resources"))...)
	errs = append(errs, probe(c.LivenessProbe, true, path.Child("livenessProbe"))...)
	errs = append(errs, probe(c.StartupProbe, true, path.Child("startupProbe"))...)
	return append(errs, probe(c.ReadinessProbe, false, path.Child("readinessProbe"))...)
}

func image(name string, path *field.Path) field.ErrorList {
	switch {
	case name == "":
		return field.ErrorList{field.Required(path, "")}
	case strings.TrimSpace(name) != name:
		return field.ErrorList{field.Invalid(path, name, "must not have leading or trailing whitespace")}
	}
	return nil
}

func containerPorts(ports []corev1.ContainerPort, hostNetwork bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i, p := range ports {
		at := path.Index(i)
		if p.Name != "" {
			errs = append(errs, invalid(at.Child("name"), p.Name, utilvalidation.IsValidPortName(p.Name))...)
			if names.Has(p.Name) {
				errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
			}
			names.Insert(p.Name)
		}
		if p.ContainerPort == 0 {
			errs = append(errs, field.Required(at.Child("containerPort"), ""))
		} else {
			errs = append(errs, portNumber(p.ContainerPort, at.Child("containerPort"))...)
		}
		if p.HostPort != 0 {
			errs = append(errs, portNumber(p.HostPort, at.Child("hostPort"))...)
		}
		if hostNetwork && p.HostPort != p.ContainerPort {
			errs = append(errs, field.Invalid(at.Child("hostPort"), p.HostPort,
				"must match `containerPort` when `hostNetwork` is true"))
		}
		errs = append(errs, protocol(p.Protocol, at.Child("protocol"))...)
	}
	return errs
}

// hostPorts refuses a pod that could not start on any node: two of its containers want the same port of the host.
func hostPorts(containers []corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	taken := sets.New[string]()
	for i, c := range containers {
		for j, p := range c.Ports {
			if p.HostPort == 0 {
				continue
			}
			key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
			if taken.Has(key) {
				errs = append(errs, field.Duplicate(path.Index(i).Child("ports").Index(j).Child("hostPort"), key))
			}
			taken.Insert(key)
		}
	}
	return errs
}

func environment(vars []corev1.EnvVar, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, v := range vars {
		at := path.Index(i)
		if v.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		} else {
			errs = append(errs, invalid(at.Child("name"), v.Name, utilvalidation.IsRelaxedEnvVarName(v.Name))...)
		}
		if v.ValueFrom != nil {
			errs = append(errs, valueFrom(&v, at.Child("valueFrom"))...)
		}
	}
	return errs
}

func valueFrom(v *corev1.EnvVar, path *field.Path) field.ErrorList {
	sources := pointersSet(*v.ValueFrom)
	switch {
	case sources == 0:
		return field.ErrorList{field.Invalid(path, "",
			"must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`")}
	case v.Value != "":
		return field.ErrorList{field.Invalid(path, "", "may not be specified when `value` is not empty")}
	case sources > 1:
		return field.ErrorList{field.Invalid(path, "", "may not have more than one field specified at a time")}
	}
	if ref := v.ValueFrom.ConfigMapKeyRef; ref != nil {
		return keyRef(ref.Name, ref.Key, path.Child("configMapKeyRef"))
	}
	if ref := v.ValueFrom.SecretKeyRef; ref != nil {
		return keyRef(ref.Name, ref.Key, path.Child("secretKeyRef"))
	}
	return nil
}

func keyRef(name, key string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if name != "" { // an empty name was let through once, and has to be for ever
		errs = append(errs, dnsSubdomain(name, path.Child("name"))...)
	}
	if key == "" {
		return append(errs, field.Required(path.Child("key"), ""))
	}
	return append(errs, invalid(path.Child("key"), key, utilvalidation.IsConfigMapKey(key))...)
}

func mounts(list []corev1.VolumeMount, mountable sets.Set[string], path *field.Path) field.ErrorList {
	var errs field.ErrorList
	paths := sets.New[string]()
	for i, m := range list {
		at := path.Index(i)
		switch {
		case m.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case !mountable.Has(m.Name):
			errs = append(errs, field.NotFound(at.Child("name"), m.Name))
		}
		switch {
		case m.MountPath == "":
			errs = append(errs, field.Required(at.Child("mountPath"), ""))
		case paths.Has(m.MountPath):
			errs = append(errs, field.Invalid(at.Child("mountPath"), m.MountPath, "must be unique"))
		}
		paths.Insert(m.MountPath)
		errs = append(errs, descendingPath(m.SubPath, at.Child("subPath"))...)
		errs = append(errs, descendingPath(m.SubPathExpr, at.Child("subPathExpr"))...)
		if m.SubPath != "" && m.SubPathExpr != "" {
			errs = append(errs, field.Invalid(at.Child("subPathExpr"), m.SubPathExpr, "subPathExpr and subPath are mutually exclusive"))
		}
	}
	return errs
}

// descendingPath keeps a path inside of what it is relative to.
func descendingPath(p string, path *field.Path) field.ErrorList {
	if strings.HasPrefix(p, "/") {
		return field.ErrorList{field.Invalid(path, p, "must be a relative path")}
	}
	return noBacksteps(p, path)
}

func noBacksteps(p string, path *field.Path) field.ErrorList {
	for _, part := range strings.Split(p, "/") {
		if part == ".." {
			return field.ErrorList{field.Invalid(path, p, "must not contain '..'")}
		}
	}
	return nil
}
