package validate

import (
	stdpath "path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

//lint:file-ignore SA1019 volume types of drivers that no kubelet has any more are still in people's objects

func AccessModes(modes []corev1.PersistentVolumeAccessMode, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	single, shared := false, false
	for _, mode := range modes {
		bad := OneOf(mode, at, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod)
		errs = append(errs, bad...)
		single = single || mode == corev1.ReadWriteOncePod
		shared = shared || mode != corev1.ReadWriteOncePod && len(bad) == 0
	}
	if single && shared {
		errs = append(errs, field.Forbidden(at, "may not use ReadWriteOncePod with other access modes"))
	}
	return errs
}

func VolumeMode(mode *corev1.PersistentVolumeMode, at *field.Path) field.ErrorList {
	if mode == nil {
		return nil
	}
	return OneOf(*mode, at, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
}

func NotNegative(q resource.Quantity, at *field.Path) field.ErrorList {
	if q.Sign() < 0 {
		return field.ErrorList{field.Invalid(at, q.String(), validation.IsNegativeErrorMsg)}
	}
	return nil
}

func Positive(q resource.Quantity, at *field.Path) field.ErrorList {
	if q.Sign() <= 0 {
		return field.ErrorList{field.Invalid(at, q.String(), "must be greater than zero")}
	}
	return nil
}

// VolumeKind requires exactly one volume type, and the fields that its driver requires.
func VolumeKind(s *corev1.PersistentVolumeSpec, name string, path *field.Path) field.ErrorList {
	only, others := firstKind(s.PersistentVolumeSource, persistentVolumeOrder)
	if only == "" {
		return field.ErrorList{field.Required(path, "must specify a volume type")}
	}
	single := corev1.PersistentVolumeSpec{NodeAffinity: s.NodeAffinity}
	copyKind(&single.PersistentVolumeSource, s.PersistentVolumeSource, only)
	errs := volumeOfKind(&single, name, path)
	if s.FlexVolume != nil && only != "flexVolume" { // checked at any position
		errs = append(errs, flexVolume(s.FlexVolume, path.Child("flexVolume"))...)
		others = slices.DeleteFunc(others, func(name string) bool { return name == "flexVolume" })
	}
	return append(errs, tooMany(others, path)...)
}

func volumeOfKind(s *corev1.PersistentVolumeSpec, name string, path *field.Path) field.ErrorList {
	if s.Local != nil {
		errs := localVolume(s.Local, path.Child("local"))
		if s.NodeAffinity == nil {
			errs = append(errs, field.Required(path.Child("nodeAffinity"), "Local volume requires node affinity"))
		}
		return errs
	}
	switch {
	case s.CSI != nil:
		return csiVolume(s.CSI, path.Child("csi"))
	case s.HostPath != nil:
		return hostPath(s.HostPath, path.Child("hostPath"))
	case s.NFS != nil:
		return nfs(s.NFS, path.Child("nfs"))
	case s.ISCSI != nil:
		return iscsi(s.ISCSI, name, path.Child("iscsi"))
	case s.FC != nil:
		return fibreChannel(s.FC, path.Child("fc"))
	case s.FlexVolume != nil:
		return flexVolume(s.FlexVolume, path.Child("flexVolume"))
	}
	return cloudVolume(s, path)
}

func localVolume(l *corev1.LocalVolumeSource, path *field.Path) field.ErrorList {
	if l.Path == "" {
		return field.ErrorList{field.Required(path.Child("path"), "")}
	}
	return noBacksteps(l.Path, path.Child("path"))
}

func hostPath(h *corev1.HostPathVolumeSource, path *field.Path) field.ErrorList {
	if h.Path == "" {
		return field.ErrorList{field.Required(path.Child("path"), "")}
	}
	errs := noBacksteps(h.Path, path.Child("path"))
	if h.Type != nil {
		errs = append(errs, OneOf(*h.Type, path.Child("type"), corev1.HostPathUnset, corev1.HostPathBlockDev,
			corev1.HostPathCharDev, corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate, corev1.HostPathFile,
			corev1.HostPathFileOrCreate, corev1.HostPathSocket)...)
	}
	return errs
}

func nfs(n *corev1.NFSVolumeSource, path *field.Path) field.ErrorList {
	errs := append(RequiredName(n.Server, path.Child("server")), RequiredName(n.Path, path.Child("path"))...)
	if !stdpath.IsAbs(n.Path) {
		errs = append(errs, field.Invalid(path.Child("path"), n.Path, "must be an absolute path"))
	}
	return errs
}

func csiVolume(c *corev1.CSIPersistentVolumeSource, path *field.Path) field.ErrorList {
	errs := append(DriverName(c.Driver, path.Child("driver")), RequiredName(c.VolumeHandle, path.Child("volumeHandle"))...)
	for _, secret := range []struct {
		name string
		ref  *corev1.SecretReference
	}{
		{"controllerPublishSecretRef", c.ControllerPublishSecretRef}, {"controllerExpandSecretRef", c.ControllerExpandSecretRef},
		{"nodePublishSecretRef", c.NodePublishSecretRef}, {"nodeExpandSecretRef", c.NodeExpandSecretRef},
	} {
		if secret.ref != nil {
			errs = append(errs, secretReference(secret.ref, path.Child(secret.name))...)
		}
	}
	return errs
}

func secretReference(r *corev1.SecretReference, path *field.Path) field.ErrorList {
	errs := append(RequiredName(r.Name, path.Child("name")), RequiredName(r.Namespace, path.Child("namespace"))...)
	if r.Name != "" {
		errs = append(errs, DnsSubdomain(r.Name, path.Child("name"))...)
	}
	if r.Namespace != "" {
		errs = append(errs, DnsLabel(r.Namespace, path.Child("namespace"))...)
	}
	return errs
}

// The three formats of iSCSI names.
var (
	iqnName = regexp.MustCompile(`^iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`)
	euiName = regexp.MustCompile(`^eui.[[:alnum:]]{16}$`)
	naaName = regexp.MustCompile(`^naa.[[:alnum:]]{32}$`)
)

func iscsiName(name string, path *field.Path) field.ErrorList {
	if iqnName.MatchString(name) || euiName.MatchString(name) || naaName.MatchString(name) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, name, "must be valid format")}
}

func iscsi(s *corev1.ISCSIPersistentVolumeSource, volume string, path *field.Path) field.ErrorList {
	errs := append(RequiredName(s.TargetPortal, path.Child("targetPortal")), RequiredName(s.IQN, path.Child("iqn"))...)
	if s.IQN != "" {
		errs = append(errs, iscsiName(s.IQN, path.Child("iqn"))...)
	}
	if s.Lun < 0 || s.Lun > 255 {
		errs = append(errs, field.Invalid(path.Child("lun"), s.Lun, utilvalidation.InclusiveRangeError(0, 255)))
	}
	switch {
	case s.SecretRef != nil:
		errs = append(errs, RequiredName(s.SecretRef.Name, path.Child("secretRef", "name"))...)
	case s.DiscoveryCHAPAuth || s.SessionCHAPAuth:
		errs = append(errs, field.Required(path.Child("secretRef"), ""))
	}
	if s.InitiatorName == nil {
		return errs
	}
	if len(volume)+1+len(s.TargetPortal) > 64 {
		errs = append(errs, field.Invalid(path.Child("targetportal"), s.TargetPortal, "Total length of <volume name>:"+
			"<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."))
	}
	return append(errs, iscsiName(*s.InitiatorName, path.Child("initiatorname"))...)
}

func fibreChannel(f *corev1.FCVolumeSource, path *field.Path) field.ErrorList {
	at := path.Child("targetWWNs")
	switch {
	case len(f.TargetWWNs) == 0 && len(f.WWIDs) == 0:
		return field.ErrorList{field.Required(at, "must specify either targetWWNs or wwids, but not both")}
	case len(f.TargetWWNs) == 0:
		return nil
	}
	var errs field.ErrorList
	if len(f.WWIDs) > 0 {
		errs = append(errs, field.Invalid(at, f.TargetWWNs, "targetWWNs and wwids can not be specified simultaneously"))
	}
	switch {
	case f.Lun == nil:
		errs = append(errs, field.Required(path.Child("lun"), "lun is required if targetWWNs is specified"))
	case *f.Lun < 0 || *f.Lun > 255:
		errs = append(errs, field.Invalid(path.Child("lun"), *f.Lun, utilvalidation.InclusiveRangeError(0, 255)))
	}
	return errs
}

func flexVolume(f *corev1.FlexPersistentVolumeSource, path *field.Path) field.ErrorList {
	errs := RequiredName(f.Driver, path.Child("driver"))
	for key := range f.Options {
		owner, _, _ := strings.Cut(key, "/")
		owner = "." + strings.ToLower(owner)
		if strings.HasSuffix(owner, ".kubernetes.io") || strings.HasSuffix(owner, ".k8s.io") {
			errs = append(errs, field.Invalid(path.Child("options").Key(key), key, "kubernetes.io and k8s.io namespaces are reserved"))
		}
	}
	return errs
}

// cloudVolume checks volume types with drivers that are no longer part of Kubernetes. Only the fields that identify the disk
// are required.
func cloudVolume(s *corev1.PersistentVolumeSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	need := func(value string, names ...string) {
		errs = append(errs, RequiredName(value, path.Child(names[0], names[1:]...))...)
	}
	switch {
	case s.GCEPersistentDisk != nil:
		need(s.GCEPersistentDisk.PDName, "persistentDisk", "pdName")
		errs = append(errs, partition(s.GCEPersistentDisk.Partition, path.Child("persistentDisk", "partition"))...)
	case s.AWSElasticBlockStore != nil:
		need(s.AWSElasticBlockStore.VolumeID, "awsElasticBlockStore", "volumeID")
		errs = append(errs, partition(s.AWSElasticBlockStore.Partition, path.Child("awsElasticBlockStore", "partition"))...)
	case s.Cinder != nil:
		need(s.Cinder.VolumeID, "cinder", "volumeID")
		if s.Cinder.SecretRef != nil {
			need(s.Cinder.SecretRef.Name, "cinder", "secretRef", "name")
			need(s.Cinder.SecretRef.Namespace, "cinder", "secretRef", "namespace")
		}
	case s.AzureFile != nil:
		need(s.AzureFile.SecretName, "azureFile", "secretName")
		need(s.AzureFile.ShareName, "azureFile", "shareName")
		if s.AzureFile.SecretNamespace != nil {
			need(*s.AzureFile.SecretNamespace, "azureFile", "secretNamespace")
		}
	case s.AzureDisk != nil:
		need(s.AzureDisk.DiskName, "azureDisk", "diskName")
		need(s.AzureDisk.DataDiskURI, "azureDisk", "diskURI")
	case s.VsphereVolume != nil:
		need(s.VsphereVolume.VolumePath, "vsphereVolume", "volumePath")
	case s.RBD != nil:
		need(strings.Join(s.RBD.CephMonitors, ","), "rbd", "monitors")
		need(s.RBD.RBDImage, "rbd", "image")
	case s.CephFS != nil:
		need(strings.Join(s.CephFS.Monitors, ","), "cephfs", "monitors")
	case s.Glusterfs != nil:
		need(s.Glusterfs.EndpointsName, "glusterfs", "endpoints")
		need(s.Glusterfs.Path, "glusterfs", "path")
		if namespace := s.Glusterfs.EndpointsNamespace; namespace != nil {
			errs = append(errs, Invalid(path.Child("glusterfs", "endpointsNamespace"), *namespace,
				validation.ValidateNamespaceName(*namespace, false))...)
		}
	}
	return errs
}

func partition(number int32, path *field.Path) field.ErrorList {
	if number < 0 || number > 255 {
		return field.ErrorList{field.Invalid(path, number, utilvalidation.InclusiveRangeError(1, 255))} // zero stands for no partition
	}
	return nil
}

// ClaimSpec validates the spec of a claim or of a claim template.
func ClaimSpec(s *corev1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(s.AccessModes) == 0 {
		errs = append(errs, field.Required(path.Child("accessModes"), "at least 1 access mode is required"))
	}
	if s.Selector != nil {
		errs = append(errs, Selector(s.Selector, path.Child("selector"))...)
	}
	errs = append(errs, AccessModes(s.AccessModes, path.Child("accessModes"))...)
	size, asked := s.Resources.Requests[corev1.ResourceStorage]
	if at := path.Child("resources").Key(string(corev1.ResourceStorage)); !asked {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, Positive(size, at)...)
	}
	if class := s.StorageClassName; class != nil && *class != "" {
		errs = append(errs, DnsSubdomain(*class, path.Child("storageClassName"))...)
	}
	errs = append(errs, VolumeMode(s.VolumeMode, path.Child("volumeMode"))...)
	errs = append(errs, dataSources(s, path)...)
	if class := s.VolumeAttributesClassName; class != nil && *class != "" {
		errs = append(errs, DnsSubdomain(*class, path.Child("volumeAttributesClassName"))...)
	}
	return errs
}

// dataSources checks the two fields for the data source of a volume. The second one is newer and allows more kinds. The
// strategy has copied either into the other.
func dataSources(s *corev1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if source := s.DataSource; source != nil {
		errs = append(errs, dataSource(source.APIGroup, source.Kind, source.Name, path.Child("dataSource"))...)
	}
	ref := s.DataSourceRef
	if ref == nil {
		return errs
	}
	errs = append(errs, dataSource(ref.APIGroup, ref.Kind, ref.Name, path.Child("dataSourceRef"))...)
	if ref.Namespace != nil && *ref.Namespace != "" {
		errs = append(errs, Invalid(path.Child("dataSourceRef", "namespace"), *ref.Namespace,
			validation.ValidateNamespaceName(*ref.Namespace, false))...)
		if s.DataSource != nil {
			errs = append(errs, field.Invalid(path, path.Child("dataSource"), "may not be specified when dataSourceRef.namespace is specified"))
		}
		return errs
	}
	if s.DataSource != nil && (s.DataSource.Kind != ref.Kind || s.DataSource.Name != ref.Name || groupOf(s.DataSource.APIGroup) != groupOf(ref.APIGroup)) {
		errs = append(errs, field.Invalid(path, path.Child("dataSource"), "must match dataSourceRef"))
	}
	return errs
}

func groupOf(group *string) string {
	if group == nil {
		return ""
	}
	return *group
}

func dataSource(group *string, kind, name string, path *field.Path) field.ErrorList {
	errs := append(RequiredName(name, path.Child("name")), RequiredName(kind, path.Child("kind"))...)
	switch {
	case groupOf(group) != "":
		errs = append(errs, DnsSubdomain(*group, path.Child("apiGroup"))...)
	case kind != "PersistentVolumeClaim":
		errs = append(errs, field.Invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup"))
	}
	return errs
}

// NativeResource reports whether a name has no domain or a domain of Kubernetes.
func NativeResource(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

const maxDriverName = 63

// DriverName checks the name of a storage driver.
func DriverName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(name) > maxDriverName {
		errs = append(errs, field.TooLong(path, "", maxDriverName))
	}
	return append(errs, Invalid(path, name, utilvalidation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}
