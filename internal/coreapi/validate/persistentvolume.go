package validate

import (
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func ValidatePersistentVolume(v *corev1.PersistentVolume) field.ErrorList {
	errs := objectMeta(&v.ObjectMeta, clusterScoped, validation.NameIsDNSSubdomain)
	errs = append(errs, volumeSpec(&v.Spec, v.Name, field.NewPath("spec"))...)
	if _, options := v.Annotations[corev1.MountOptionAnnotation]; options && !takesMountOptions(&v.Spec) {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations", corev1.MountOptionAnnotation),
			"may not specify mount options for this volume type"))
	}
	return errs
}

// takesMountOptions is about the annotation from before spec.mountOptions.
func takesMountOptions(s *corev1.PersistentVolumeSpec) bool {
	return s.GCEPersistentDisk != nil || s.AWSElasticBlockStore != nil || s.Glusterfs != nil || s.NFS != nil ||
		s.RBD != nil || s.Quobyte != nil || s.ISCSI != nil || s.Cinder != nil || s.CephFS != nil || s.AzureFile != nil ||
		s.VsphereVolume != nil || s.AzureDisk != nil || s.PhotonPersistentDisk != nil
}

func volumeSpec(s *corev1.PersistentVolumeSpec, name string, at *field.Path) field.ErrorList {
	if len(s.AccessModes) == 0 {
		return append(field.ErrorList{field.Required(at.Child("accessModes"), "")}, volumeContent(s, name, at)...)
	}
	return append(accessModes(s.AccessModes, at.Child("accessModes")), volumeContent(s, name, at)...)
}

func accessModes(modes []corev1.PersistentVolumeAccessMode, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	single, shared := false, false
	for _, mode := range modes {
		bad := oneOf(mode, at, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod)
		errs = append(errs, bad...)
		single = single || mode == corev1.ReadWriteOncePod
		shared = shared || mode != corev1.ReadWriteOncePod && len(bad) == 0
	}
	if single && shared {
		errs = append(errs, field.Forbidden(at, "may not use ReadWriteOncePod with other access modes"))
	}
	return errs
}

func volumeContent(s *corev1.PersistentVolumeSpec, name string, at *field.Path) field.ErrorList {
	errs := volumeCapacity(s.Capacity, at.Child("capacity"))
	if s.PersistentVolumeReclaimPolicy != "" {
		errs = append(errs, oneOf(s.PersistentVolumeReclaimPolicy, at.Child("persistentVolumeReclaimPolicy"),
			corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)...)
	}
	if s.NodeAffinity != nil {
		errs = append(errs, volumeNodes(s.NodeAffinity, at.Child("nodeAffinity"))...)
	}
	errs = append(errs, volumeKind(s, name, at)...)
	if s.HostPath != nil && path.Clean(s.HostPath.Path) == "/" && s.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		errs = append(errs, field.Forbidden(at.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'"))
	}
	if s.StorageClassName != "" {
		errs = append(errs, dnsSubdomain(s.StorageClassName, at.Child("storageClassName"))...)
	}
	errs = append(errs, volumeMode(s.VolumeMode, at.Child("volumeMode"))...)
	if class := s.VolumeAttributesClassName; class != nil {
		if *class == "" {
			errs = append(errs, field.Required(at.Child("volumeAttributesClassName"), "an empty string is disallowed"))
		} else {
			errs = append(errs, dnsSubdomain(*class, at.Child("volumeAttributesClassName"))...)
		}
		if s.CSI == nil {
			errs = append(errs, field.Required(at.Child("csi"), "has to be specified when using volumeAttributesClassName"))
		}
	}
	return errs
}

func volumeCapacity(capacity corev1.ResourceList, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(capacity) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	if _, storage := capacity[corev1.ResourceStorage]; !storage || len(capacity) > 1 {
		errs = append(errs, field.NotSupported(at, capacity, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	for name, quantity := range capacity {
		errs = append(errs, positive(quantity, at.Key(string(name)))...)
	}
	return errs
}

func volumeMode(mode *corev1.PersistentVolumeMode, at *field.Path) field.ErrorList {
	if mode == nil {
		return nil
	}
	return oneOf(*mode, at, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
}

func notNegative(q resource.Quantity, at *field.Path) field.ErrorList {
	if q.Sign() < 0 {
		return field.ErrorList{field.Invalid(at, q.String(), validation.IsNegativeErrorMsg)}
	}
	return nil
}

func positive(q resource.Quantity, at *field.Path) field.ErrorList {
	if q.Sign() <= 0 {
		return field.ErrorList{field.Invalid(at, q.String(), "must be greater than zero")}
	}
	return nil
}

func volumeNodes(affinity *corev1.VolumeNodeAffinity, at *field.Path) field.ErrorList {
	if affinity.Required == nil {
		return field.ErrorList{field.Required(at.Child("required"), "must specify required node constraints")}
	}
	return nodeTerms(affinity.Required, at.Child("required"))
}

// inlineVolumeSpec checks the volume of an attachment that belongs to no PersistentVolume: one of a storage driver, and
// nothing about claims.
func inlineVolumeSpec(s *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	const never = "may not be specified in the context of inline volumes"
	var errs field.ErrorList
	if len(s.AccessModes) == 0 {
		errs = append(errs, field.Required(at.Child("accessModes"), ""))
	}
	errs = append(errs, accessModes(s.AccessModes, at.Child("accessModes"))...)
	for name, set := range map[string]bool{
		"claimRef": s.ClaimRef != nil, "capacity": len(s.Capacity) > 0, "nodeAffinity": s.NodeAffinity != nil,
		"storageClassName": s.StorageClassName != "",
	} {
		if set {
			errs = append(errs, field.Forbidden(at.Child(name), never))
		}
	}
	if policy := s.PersistentVolumeReclaimPolicy; policy != "" && policy != corev1.PersistentVolumeReclaimRetain {
		errs = append(errs, field.Forbidden(at.Child("persistentVolumeReclaimPolicy"),
			"may only be "+string(corev1.PersistentVolumeReclaimRetain)+" in the context of inline volumes"))
	}
	if s.VolumeMode != nil && *s.VolumeMode != corev1.PersistentVolumeFilesystem {
		errs = append(errs, field.Forbidden(at.Child("volumeMode"), "may not specify volumeMode other than "+
			string(corev1.PersistentVolumeFilesystem)+" in the context of inline volumes"))
	}
	if s.CSI == nil {
		errs = append(errs, field.Required(at.Child("csi"), "has to be specified in the context of inline volumes"))
	}
	return append(errs, volumeKind(s, "", at)...)
}

// ValidatePersistentVolumeUpdate keeps where the data is: a volume that moved would show its claim somebody else's.
func ValidatePersistentVolumeUpdate(v, old *corev1.PersistentVolume) field.ErrorList {
	errs := ValidatePersistentVolume(v)
	next, before := v.Spec.PersistentVolumeSource, old.Spec.PersistentVolumeSource
	if before.CSI != nil && before.CSI.ControllerExpandSecretRef == nil && next.CSI != nil {
		// Set once, so that volumes from before it was known can grow.
		next.CSI = next.CSI.DeepCopy()
		next.CSI.ControllerExpandSecretRef = nil
	}
	if !apiequality.Semantic.DeepEqual(next, before) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "persistentvolumesource"),
			fmt.Sprintf("spec.persistentvolumesource is immutable after creation\n%v", diff.Diff(before, next))))
	}
	errs = append(errs, immutable(v.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
	if old.Spec.NodeAffinity != nil && !sameNodes(v.Spec.NodeAffinity, old.Spec.NodeAffinity) {
		errs = append(errs, field.Invalid(field.NewPath("nodeAffinity"), v.Spec.NodeAffinity,
			validation.FieldImmutableErrorMsg+", except for updating from beta label to GA"))
	}
	if old.Spec.VolumeAttributesClassName != nil && v.Spec.VolumeAttributesClassName == nil {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "volumeAttributesClassName"),
			"update from non-nil value to nil is forbidden"))
	}
	return errs
}

// labelsSince are the names that node labels got when they left beta; a volume may follow.
var labelsSince = map[string]string{
	corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	"beta.kubernetes.io/os":             corev1.LabelOSStable,
	"beta.kubernetes.io/arch":           corev1.LabelArchStable,
	corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
}

// sameNodes compares affinities, whichever of its names a label goes by in the new one.
func sameNodes(next, old *corev1.VolumeNodeAffinity) bool {
	if apiequality.Semantic.DeepEqual(next, old) {
		return true
	}
	if next == nil || next.Required == nil || old.Required == nil || len(next.Required.NodeSelectorTerms) != len(old.Required.NodeSelectorTerms) {
		return false
	}
	renamed := old.DeepCopy()
	for i := range renamed.Required.NodeSelectorTerms {
		before, now := renamed.Required.NodeSelectorTerms[i].MatchExpressions, next.Required.NodeSelectorTerms[i].MatchExpressions
		if len(before) != len(now) {
			return false
		}
		for j := range before {
			if labelsSince[before[j].Key] == now[j].Key {
				before[j].Key = now[j].Key
			}
		}
	}
	return apiequality.Semantic.DeepEqual(next, renamed)
}

func PersistentVolumeWarnings(v *corev1.PersistentVolume) []string {
	var warnings []string
	for _, old := range []struct{ key, message string }{
		{corev1.BetaStorageClassAnnotation, `deprecated since v1.8; use "storageClassName" attribute instead`},
		{corev1.MountOptionAnnotation, `deprecated since v1.31; use "mountOptions" attribute instead`},
	} {
		if _, set := v.Annotations[old.key]; set {
			warnings = append(warnings, fmt.Sprintf("%s: %s", field.NewPath("metadata", "annotations").Key(old.key), old.message))
		}
	}
	if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		warnings = append(warnings, "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the "+
			"recommended approach is to use dynamic provisioning.")
	}
	if affinity := v.Spec.NodeAffinity; affinity != nil && affinity.Required != nil {
		for i, term := range affinity.Required.NodeSelectorTerms {
			at := field.NewPath("spec", "nodeAffinity", "required", "nodeSelectorTerms").Index(i).Child("matchExpressions")
			for j, expression := range term.MatchExpressions {
				if message, old := oldNodeLabels[expression.Key]; old {
					warnings = append(warnings, fmt.Sprintf("%s: %s is %s", at.Index(j).Child("key"), expression.Key, message))
				}
			}
		}
	}
	for _, gone := range []struct {
		set     bool
		message string
	}{
		{v.Spec.CephFS != nil, "spec.cephfs: deprecated in v1.28, non-functional in v1.31+"},
		{v.Spec.PhotonPersistentDisk != nil, "spec.photonPersistentDisk: deprecated in v1.11, non-functional in v1.16+"},
		{v.Spec.ScaleIO != nil, "spec.scaleIO: deprecated in v1.16, non-functional in v1.22+"},
		{v.Spec.StorageOS != nil, "spec.storageOS: deprecated in v1.22, non-functional in v1.25+"},
		{v.Spec.Glusterfs != nil, "spec.glusterfs: deprecated in v1.25, non-functional in v1.26+"},
		{v.Spec.RBD != nil, "spec.rbd: deprecated in v1.28, non-functional in v1.31+"},
	} {
		if gone.set {
			warnings = append(warnings, gone.message)
		}
	}
	return warnings
}
