package core

import (
	"fmt"
	"path"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

//lint:file-ignore SA1019 v1 Endpoints are deprecated, and still served to clients from before EndpointSlices

// The initial status of volumes, and the time of their last phase change.

func prepareVolume(obj runtime.Object) {
	now := metav1.Now()
	obj.(*corev1.PersistentVolume).Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending, LastPhaseTransitionTime: &now}
}

// datePhase records the time of a phase change, unless the controller has set it.
func datePhase(obj, old runtime.Object) {
	status, before := &obj.(*corev1.PersistentVolume).Status, old.(*corev1.PersistentVolume).Status
	said := status.LastPhaseTransitionTime
	switch {
	case status.Phase == before.Phase && said == nil:
		status.LastPhaseTransitionTime = before.LastPhaseTransitionTime
	case status.Phase != before.Phase && (said == nil || said.Equal(before.LastPhaseTransitionTime)):
		now := metav1.Now()
		status.LastPhaseTransitionTime = &now
	}
}

func persistentVolumeResource() registry.Resource {
	return registry.Resource{
		Name: "persistentvolumes", Singular: "persistentvolume", ShortNames: []string{"pv"}, ClusterScoped: true,
		Object: &corev1.PersistentVolume{}, List: &corev1.PersistentVolumeList{}, WatchCache: true, ReturnDeletedObject: true, AllowUnconditionalUpdate: true,
		Samples: []string{
			"metadata: {name: pv}\n" +
				"spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], csi: {driver: csi.example.com, volumeHandle: v1}}",
			"metadata: {name: pv}\n" +
				"spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /srv}}",
			"metadata: {name: pv}\n" +
				"spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], nfs: {server: files, path: /export}, mountOptions: [ro]}",
			"metadata: {name: pv}\n" +
				"spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], local: {path: /mnt/a}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n1]}]}]}}}",
			"metadata: {name: pv}\n" +
				"spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], iscsi: {targetPortal: '10.0.0.1:3260', iqn: 'iqn.2001-04.com.example:storage.disk1', lun: 0}}",
			"metadata: {name: pv}\n" +
				"spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], awsElasticBlockStore: {volumeID: vol-1}}",
		},
		Rules:    validate.WithStatus(validatePersistentVolume, validatePersistentVolumeUpdate, unchecked[*corev1.PersistentVolume]),
		Defaults: defaults.Of(defaultPersistentVolume),
		Warnings: validate.Warn(persistentVolumeWarnings),
		Columns:  persistentVolumeColumns,
		Spec:     registry.SpecOf(func(v *corev1.PersistentVolume) *corev1.PersistentVolumeSpec { return &v.Spec }),
		Status:   registry.StatusOf(func(v *corev1.PersistentVolume) *corev1.PersistentVolumeStatus { return &v.Status }), StatusChangesMetadata: true,
		PrepareCreate: prepareVolume, PrepareStatus: datePhase,
	}
}

func persistentVolumeColumns() columns.Printer {
	spec, status := corev1.PersistentVolumeSpec{}.SwaggerDoc(), corev1.PersistentVolumeStatus{}.SwaggerDoc()
	return columns.Show(func(v *corev1.PersistentVolume, now time.Time) []any {
		claim := ""
		if ref := v.Spec.ClaimRef; ref != nil {
			claim = ref.Namespace + "/" + ref.Name
		}
		size := v.Spec.Capacity[corev1.ResourceStorage]
		return []any{
			v.Name, size.String(), shortModes(v.Spec.AccessModes), string(v.Spec.PersistentVolumeReclaimPolicy),
			volumePhase(string(v.Status.Phase), v), claim, classOf(v.Annotations, &v.Spec.StorageClassName),
			orUnset(v.Spec.VolumeAttributesClassName), v.Status.Reason, columns.AgeOf(v, now), orUnset(v.Spec.VolumeMode),
		}
	}, columns.Name(), columns.Text("Capacity", spec["capacity"]), columns.Text("Access Modes", spec["accessModes"]),
		columns.Text("Reclaim Policy", spec["persistentVolumeReclaimPolicy"]), columns.Text("Status", status["phase"]), columns.Text("Claim", spec["claimRef"]),
		columns.Text("StorageClass", "The storage class of the volume"), columns.Text("VolumeAttributesClass", "The attributes class of the volume"),
		columns.Text("Reason", status["reason"]), columns.Age(), columns.Wide(columns.Text("VolumeMode", spec["volumeMode"])))
}

func defaultPersistentVolume(v *corev1.PersistentVolume) {
	defaults.Set(&v.Status.Phase, corev1.VolumePending)
	defaults.Set(&v.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	defaults.Point(&v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	defaults.Milli(v.Spec.Capacity)
	defaults.VolumeSource(&v.Spec.PersistentVolumeSource)
}

// unchecked is for statuses without any field to validate.
func unchecked[T runtime.Object](_, _ T) field.ErrorList { return nil }

func validatePersistentVolume(v *corev1.PersistentVolume) field.ErrorList {
	errs := validate.ObjectMeta(&v.ObjectMeta, validate.ClusterScoped, validation.NameIsDNSSubdomain)
	errs = append(errs, volumeSpec(&v.Spec, v.Name, field.NewPath("spec"))...)
	if _, options := v.Annotations[corev1.MountOptionAnnotation]; options && !takesMountOptions(&v.Spec) {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations", corev1.MountOptionAnnotation),
			"may not specify mount options for this volume type"))
	}
	return errs
}

// takesMountOptions reports whether a volume type supports the annotation that preceded spec.mountOptions.
func takesMountOptions(s *corev1.PersistentVolumeSpec) bool {
	return s.GCEPersistentDisk != nil || s.AWSElasticBlockStore != nil || s.Glusterfs != nil || s.NFS != nil ||
		s.RBD != nil || s.Quobyte != nil || s.ISCSI != nil || s.Cinder != nil || s.CephFS != nil || s.AzureFile != nil ||
		s.VsphereVolume != nil || s.AzureDisk != nil || s.PhotonPersistentDisk != nil
}

func volumeSpec(s *corev1.PersistentVolumeSpec, name string, at *field.Path) field.ErrorList {
	if len(s.AccessModes) == 0 {
		return append(field.ErrorList{field.Required(at.Child("accessModes"), "")}, volumeContent(s, name, at)...)
	}
	return append(validate.AccessModes(s.AccessModes, at.Child("accessModes")), volumeContent(s, name, at)...)
}

func volumeContent(s *corev1.PersistentVolumeSpec, name string, at *field.Path) field.ErrorList {
	errs := volumeCapacity(s.Capacity, at.Child("capacity"))
	if s.PersistentVolumeReclaimPolicy != "" {
		errs = append(errs, validate.OneOf(s.PersistentVolumeReclaimPolicy, at.Child("persistentVolumeReclaimPolicy"),
			corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)...)
	}
	if s.NodeAffinity != nil {
		errs = append(errs, volumeNodes(s.NodeAffinity, at.Child("nodeAffinity"))...)
	}
	errs = append(errs, validate.VolumeKind(s, name, at)...)
	if s.HostPath != nil && path.Clean(s.HostPath.Path) == "/" && s.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		errs = append(errs, field.Forbidden(at.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'"))
	}
	if s.StorageClassName != "" {
		errs = append(errs, validate.DnsSubdomain(s.StorageClassName, at.Child("storageClassName"))...)
	}
	errs = append(errs, validate.VolumeMode(s.VolumeMode, at.Child("volumeMode"))...)
	if class := s.VolumeAttributesClassName; class != nil {
		if *class == "" {
			errs = append(errs, field.Required(at.Child("volumeAttributesClassName"), "an empty string is disallowed"))
		} else {
			errs = append(errs, validate.DnsSubdomain(*class, at.Child("volumeAttributesClassName"))...)
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
		errs = append(errs, validate.Positive(quantity, at.Key(string(name)))...)
	}
	return errs
}

func volumeNodes(affinity *corev1.VolumeNodeAffinity, at *field.Path) field.ErrorList {
	if affinity.Required == nil {
		return field.ErrorList{field.Required(at.Child("required"), "must specify required node constraints")}
	}
	return validate.NodeTerms(affinity.Required, at.Child("required"))
}

// validatePersistentVolumeUpdate makes the volume source immutable: another source would expose the data of another volume to
// the claim.
func validatePersistentVolumeUpdate(v, old *corev1.PersistentVolume) field.ErrorList {
	errs := validatePersistentVolume(v)
	next, before := v.Spec.PersistentVolumeSource, old.Spec.PersistentVolumeSource
	if before.CSI != nil && before.CSI.ControllerExpandSecretRef == nil && next.CSI != nil {
		// Can be set once, so that volumes that are older than the field can be expanded.
		next.CSI = next.CSI.DeepCopy()
		next.CSI.ControllerExpandSecretRef = nil
	}
	if !apiequality.Semantic.DeepEqual(next, before) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "persistentvolumesource"),
			fmt.Sprintf("spec.persistentvolumesource is immutable after creation\n%v", diff.Diff(before, next))))
	}
	errs = append(errs, validate.Immutable(v.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
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

// labelsSince maps the beta node labels to their stable names. A volume may change to the stable name.
var labelsSince = map[string]string{
	corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	"beta.kubernetes.io/os":             corev1.LabelOSStable,
	"beta.kubernetes.io/arch":           corev1.LabelArchStable,
	corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
}

// sameNodes compares affinities. next may use the stable name of a beta label in old.
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

func persistentVolumeWarnings(v *corev1.PersistentVolume) []string {
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
				if message, old := validate.OldNodeLabels[expression.Key]; old {
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
