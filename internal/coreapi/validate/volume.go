package validate

import (
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// volumeList checks the volumes and records the valid ones, which containers may mount.
func (p *podScope) volumeList(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	made := sets.New[string]() // claims that are created with the pod
	for _, v := range p.spec.Volumes {
		if v.Ephemeral != nil && p.meta != nil && p.meta.Name != "" {
			made.Insert(p.meta.Name + "-" + v.Name)
		}
	}
	for i := range p.spec.Volumes {
		v, at := &p.spec.Volumes[i], path.Index(i)
		bad := p.volumeKind(v, at)
		if v.Name == "" {
			bad = append(bad, field.Required(at.Child("name"), ""))
		} else {
			bad = append(bad, DnsLabel(v.Name, at.Child("name"))...)
		}
		if p.volumes[v.Name] != nil {
			bad = append(bad, field.Duplicate(at.Child("name"), v.Name))
		}
		if len(bad) == 0 {
			p.volumes[v.Name] = &v.VolumeSource
		}
		errs = append(errs, bad...)
		if c := v.PersistentVolumeClaim; c != nil && made.Has(c.ClaimName) {
			errs = append(errs, field.Invalid(at.Child("persistentVolumeClaim", "claimName"), c.ClaimName,
				"must not reference a PVC that gets created for an ephemeral volume"))
		}
	}
	return errs
}

// volumeKind checks the first volume type that is set, and refuses any further one.
func (p *podScope) volumeKind(v *corev1.Volume, path *field.Path) field.ErrorList {
	only, others := firstKind(v.VolumeSource, podVolumeOrder)
	if only == "" {
		return field.ErrorList{field.Required(path, "must specify a volume type")}
	}
	single := corev1.Volume{Name: v.Name}
	copyKind(&single.VolumeSource, v.VolumeSource, only)
	return append(p.volumeSource(&single, path, path.Child(only)), tooMany(others, path)...)
}

// volumeSource checks a volume; at is the path of its type.
func (p *podScope) volumeSource(v *corev1.Volume, path, at *field.Path) field.ErrorList {
	switch {
	case v.EmptyDir != nil:
		if limit := v.EmptyDir.SizeLimit; limit != nil && limit.Sign() < 0 {
			return field.ErrorList{field.Forbidden(at.Child("sizeLimit"), "SizeLimit field must be a valid resource quantity")}
		}
		return nil
	case v.HostPath != nil:
		return hostPath(v.HostPath, at)
	case v.GitRepo != nil:
		return append(RequiredName(v.GitRepo.Repository, at.Child("repository")), descendingPath(v.GitRepo.Directory, at.Child("directory"))...)
	case v.Secret != nil:
		errs := RequiredName(v.Secret.SecretName, at.Child("secretName"))
		errs = append(errs, fileMode(v.Secret.DefaultMode, at.Child("defaultMode"))...)
		return append(errs, keyFiles(v.Secret.Items, at.Child("items"))...)
	case v.ConfigMap != nil:
		errs := RequiredName(v.ConfigMap.Name, at.Child("name"))
		errs = append(errs, fileMode(v.ConfigMap.DefaultMode, at.Child("defaultMode"))...)
		return append(errs, keyFiles(v.ConfigMap.Items, at.Child("items"))...)
	case v.DownwardAPI != nil:
		errs := fileMode(v.DownwardAPI.DefaultMode, at.Child("defaultMode"))
		for i := range v.DownwardAPI.Items {
			errs = append(errs, downwardFile(&v.DownwardAPI.Items[i], at)...)
		}
		return errs
	case v.Projected != nil:
		return projected(v.Projected, at)
	case v.PersistentVolumeClaim != nil:
		return RequiredName(v.PersistentVolumeClaim.ClaimName, at.Child("claimName"))
	case v.Ephemeral != nil:
		return p.ephemeralVolume(v, path, at)
	case v.CSI != nil:
		errs := DriverName(v.CSI.Driver, at.Child("driver"))
		if ref := v.CSI.NodePublishSecretRef; ref != nil {
			if ref.Name == "" {
				return append(errs, field.Required(at.Child("nodePublishSecretRef", "name"), ""))
			}
			errs = append(errs, DnsSubdomain(ref.Name, at.Child("name"))...) // the path is kube-apiserver's
		}
		return errs
	case v.Image != nil:
		errs := RequiredName(v.Image.Reference, at.Child("reference"))
		return append(errs, Required(v.Image.PullPolicy, at.Child("pullPolicy"), corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
	case v.NFS != nil:
		return nfs(v.NFS, at)
	case v.FC != nil:
		return fibreChannel(v.FC, at)
	case v.ISCSI != nil:
		return iscsi(&corev1.ISCSIPersistentVolumeSource{
			TargetPortal: v.ISCSI.TargetPortal, IQN: v.ISCSI.IQN, Lun: v.ISCSI.Lun, DiscoveryCHAPAuth: v.ISCSI.DiscoveryCHAPAuth,
			SessionCHAPAuth: v.ISCSI.SessionCHAPAuth, InitiatorName: v.ISCSI.InitiatorName, SecretRef: chapSecret(v.ISCSI.SecretRef),
		}, v.Name, at)
	}
	return clusterVolume(v, at)
}

func chapSecret(r *corev1.LocalObjectReference) *corev1.SecretReference {
	if r == nil {
		return nil
	}
	return &corev1.SecretReference{Name: r.Name}
}

// ephemeralVolume checks the template of a claim that is created for the pod. The claim's name consists of both names.
func (p *podScope) ephemeralVolume(v *corev1.Volume, path, at *field.Path) field.ErrorList {
	claim := v.Ephemeral.VolumeClaimTemplate
	at = at.Child("volumeClaimTemplate")
	if claim == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := validation.ValidateAnnotations(claim.Annotations, at.Child("metadata", "annotations"))
	errs = append(errs, metav1validation.ValidateLabels(claim.Labels, at.Child("metadata", "labels"))...)
	errs = append(errs, onlyFields(claim.ObjectMeta, sets.New("Annotations", "Labels"), "cannot be set", at.Child("metadata"))...)
	errs = append(errs, ClaimSpec(&claim.Spec, at.Child("spec"))...)
	if p.meta == nil || p.meta.Name == "" || v.Name == "" {
		return errs
	}
	name := p.meta.Name + "-" + v.Name
	for _, message := range validation.NameIsDNSSubdomain(name, false) {
		errs = append(errs, field.Invalid(path.Child("name"), v.Name, "PVC name \""+name+"\": "+message))
	}
	return errs
}

func keyFiles(items []corev1.KeyToPath, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, item := range items {
		at := path.Index(i)
		errs = append(errs, RequiredName(item.Key, at.Child("key"))...)
		errs = append(errs, RequiredName(item.Path, at.Child("path"))...)
		errs = append(errs, fileName(item.Path, at.Child("path"))...)
		errs = append(errs, fileMode(item.Mode, at.Child("mode"))...)
	}
	return errs
}

func downwardFile(f *corev1.DownwardAPIVolumeFile, path *field.Path) field.ErrorList {
	errs := append(RequiredName(f.Path, path.Child("path")), fileName(f.Path, path.Child("path"))...)
	switch {
	case f.FieldRef != nil:
		errs = append(errs, fieldRef(f.FieldRef, fileFields, path.Child("fieldRef"))...)
		if f.ResourceFieldRef != nil {
			errs = append(errs, field.Invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
		}
	case f.ResourceFieldRef != nil:
		errs = append(errs, resourceRef(f.ResourceFieldRef, true, path.Child("resourceFieldRef"))...)
	default:
		errs = append(errs, field.Required(path, "one of fieldRef and resourceFieldRef is required"))
	}
	return append(errs, fileMode(f.Mode, path.Child("mode"))...)
}

func RequiredName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

func fileMode(mode *int32, path *field.Path) field.ErrorList {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		return field.ErrorList{field.Invalid(path, *mode, "must be a number between 0 and 0777 (octal), both inclusive")}
	}
	return nil
}

// pointersSet counts the non-nil pointers in a struct that is a union.
func pointersSet(choice any) int {
	count := 0
	for _, member := range reflect.ValueOf(choice).Fields() {
		if member.Kind() == reflect.Pointer && !member.IsNil() {
			count++
		}
	}
	return count
}

// The order in which kube-apiserver checks volume types. It checks the first one that is set and refuses any further one.
var (
	podVolumeOrder = []string{
		"emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs", "iscsi", "glusterfs",
		"flocker", "persistentVolumeClaim", "rbd", "cinder", "cephfs", "quobyte", "downwardAPI", "fc", "flexVolume", "configMap",
		"azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk", "storageos", "projected", "scaleIO",
		"csi", "ephemeral", "image",
	}
	persistentVolumeOrder = []string{
		"hostPath", "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "flocker", "nfs", "rbd", "quobyte", "cephfs", "iscsi",
		"cinder", "fc", "flexVolume", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk", "scaleIO",
		"local", "storageos", "csi",
	}
)

// spelled maps volume types to their different spelling in kube-apiserver's error for a second type.
var spelled = map[string]string{"cephfs": "cephFS", "downwardAPI": "downwarAPI"}

// firstKind returns the first type that is set, and the others. choice is a struct with a pointer per type.
func firstKind(choice any, order []string) (first string, others []string) {
	set := map[string]bool{}
	for f, member := range reflect.ValueOf(choice).Fields() {
		set[jsonName(f)] = !member.IsNil()
	}
	for _, name := range order {
		switch {
		case !set[name]:
		case first == "":
			first = name
		default:
			others = append(others, name)
		}
	}
	return first, others
}

// copyKind copies the field with a JSON name from a struct to another struct of the same type, which to points to.
func copyKind(to, from any, name string) {
	source, target := reflect.ValueOf(from), reflect.ValueOf(to).Elem()
	for i := range source.NumField() {
		if jsonName(source.Type().Field(i)) == name {
			target.Field(i).Set(source.Field(i))
		}
	}
}

func tooMany(others []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range others {
		if as, ok := spelled[name]; ok {
			name = as
		}
		errs = append(errs, field.Forbidden(path.Child(name), "may not specify more than 1 volume type"))
	}
	return errs
}

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
	privileged := c.SecurityContext != nil && IsTrue(c.SecurityContext.Privileged)
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

// devices checks the volumes that a container gets as block devices. Only claims support them.
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

// descendingPath requires a relative path that does not leave its base directory.
func descendingPath(p string, path *field.Path) field.ErrorList {
	if strings.HasPrefix(p, "/") {
		return field.ErrorList{field.Invalid(path, p, "must be a relative path")}
	}
	return noBacksteps(p, path)
}

// fileName also refuses names that begin with "..", which kubelets use to replace the contents of a volume.
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
