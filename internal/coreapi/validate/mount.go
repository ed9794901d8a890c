package validate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (p *podScope) mounts(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	paths, deviceNames, devicePaths := sets.New[string](), sets.New[string](), sets.New[string]()
	for _, d := range c.VolumeDevices {
		deviceNames.Insert(d.Name)
		devicePaths.Insert(d.DevicePath)
	}
	for i := range c.VolumeMounts {
		m, at := &c.VolumeMounts[i], path.Index(i)
		if m.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		if p.volumes[m.Name] == nil {
			errs = append(errs, field.NotFound(at.Child("name"), m.Name))
		}
		if deviceNames.Has(m.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), m.Name, "must not already exist in volumeDevices"))
		}
		switch {
		case m.MountPath == "":
			errs = append(errs, field.Required(at.Child("mountPath"), ""))
		case paths.Has(m.MountPath):
			errs = append(errs, field.Invalid(at.Child("mountPath"), m.MountPath, "must be unique"))
		}
		if devicePaths.Has(m.MountPath) {
			errs = append(errs, field.Invalid(at.Child("mountPath"), m.MountPath, "must not already exist as a path in volumeDevices"))
		}
		paths.Insert(m.MountPath)
		errs = append(errs, descendingPath(m.SubPath, path.Child("subPath"))...)
		errs = append(errs, descendingPath(m.SubPathExpr, path.Child("subPathExpr"))...)
		if m.SubPath != "" && m.SubPathExpr != "" {
			errs = append(errs, field.Invalid(at.Child("subPathExpr"), m.SubPathExpr, "subPathExpr and subPath are mutually exclusive"))
		}
		errs = append(errs, propagation(m, c, path.Child("mountPropagation"))...)
		errs = append(errs, recursiveReadOnly(m, path.Child("recursiveReadOnly"))...)
	}
	return errs
}

func propagation(m *corev1.VolumeMount, c *corev1.Container, path *field.Path) field.ErrorList {
	if m.MountPropagation == nil {
		return nil
	}
	errs := OneOf(*m.MountPropagation, path, corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone)
	privileged := c.SecurityContext != nil && Frozen(c.SecurityContext.Privileged)
	if *m.MountPropagation == corev1.MountPropagationBidirectional && !privileged {
		errs = append(errs, field.Forbidden(path, "Bidirectional mount propagation is available only to privileged containers"))
	}
	return errs
}

func recursiveReadOnly(m *corev1.VolumeMount, path *field.Path) field.ErrorList {
	if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == corev1.RecursiveReadOnlyDisabled {
		return nil
	}
	errs := OneOf(*m.RecursiveReadOnly, path, corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible)
	if len(errs) > 0 {
		return errs
	}
	if !m.ReadOnly {
		errs = append(errs, field.Forbidden(path, "may only be specified when readOnly is true"))
	}
	if m.MountPropagation != nil && *m.MountPropagation != corev1.MountPropagationNone {
		errs = append(errs, field.Forbidden(path, "may only be specified when mountPropagation is None or not specified"))
	}
	return errs
}

// devices are volumes that a container gets as they are, without a file system: only a claim has such.
func (p *podScope) devices(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	mountNames, mountPaths := sets.New[string](), sets.New[string]()
	for _, m := range c.VolumeMounts {
		mountNames.Insert(m.Name)
		mountPaths.Insert(m.MountPath)
	}
	names, paths := sets.New[string](), sets.New[string]()
	for i, d := range c.VolumeDevices {
		name, place := path.Index(i).Child("name"), path.Index(i).Child("devicePath")
		refuse := func(at *field.Path, value, why string) { errs = append(errs, field.Invalid(at, value, why)) }
		if d.Name == "" {
			errs = append(errs, field.Required(name, ""))
		}
		switch source := p.volumes[d.Name]; {
		case source == nil:
			errs = append(errs, field.NotFound(name, d.Name))
		case source.PersistentVolumeClaim == nil && source.Ephemeral == nil:
			refuse(name, d.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode")
		}
		if d.Name != "" && names.Has(d.Name) {
			refuse(name, d.Name, "must be unique")
		}
		if d.DevicePath == "" {
			errs = append(errs, field.Required(place, ""))
		}
		if paths.Has(d.DevicePath) {
			refuse(place, d.DevicePath, "must be unique")
		}
		if len(noBacksteps(d.DevicePath, place)) > 0 {
			refuse(place, d.DevicePath, "can not contain backsteps ('..')")
		}
		if mountNames.Has(d.Name) {
			refuse(name, d.Name, "must not already exist in volumeMounts")
		}
		if mountPaths.Has(d.DevicePath) {
			refuse(place, d.DevicePath, "must not already exist as a path in volumeMounts")
		}
		names.Insert(d.Name)
		paths.Insert(d.DevicePath)
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

// fileName is a descending path that no kubelet needs for itself: what begins with .. is how it swaps a volume's content.
func fileName(p string, path *field.Path) field.ErrorList {
	errs := descendingPath(p, path)
	if strings.HasPrefix(p, "..") && !strings.HasPrefix(p, "../") {
		errs = append(errs, field.Invalid(path, p, "must not start with '..'"))
	}
	return errs
}

func noBacksteps(p string, path *field.Path) field.ErrorList {
	for _, part := range strings.Split(p, "/") {
		if part == ".." {
			return field.ErrorList{field.Invalid(path, p, "must not contain '..'")}
		}
	}
	return nil
}
