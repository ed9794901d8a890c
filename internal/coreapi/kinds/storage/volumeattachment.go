package storage

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func volumeAttachmentResource() registry.Resource {
	return registry.Resource{
		Name: "volumeattachments", Singular: "volumeattachment", ClusterScoped: true,
		Object: &storagev1.VolumeAttachment{}, List: &storagev1.VolumeAttachmentList{}, ReturnDeletedObject: true, WatchCache: true,
		Samples: []string{
			"metadata: {name: a}\n" +
				"spec: {attacher: csi.example.com, nodeName: n1, source: {persistentVolumeName: pv}}",
			"metadata: {name: b}\n" +
				"spec: {attacher: csi.example.com, nodeName: n1, source: {inlineVolumeSpec: {accessModes: [ReadWriteOnce], csi: {driver: csi.example.com, volumeHandle: v}}}}",
		},
		Rules:    validate.WithStatus(validateVolumeAttachment, validateVolumeAttachmentUpdate, validateVolumeAttachmentUpdate),
		Defaults: defaults.Of(defaultVolumeAttachment),
		Columns:  volumeAttachmentColumns,
		Spec:     registry.SpecOf(func(o *storagev1.VolumeAttachment) *storagev1.VolumeAttachmentSpec { return &o.Spec }),
		Status:   registry.StatusOf(func(o *storagev1.VolumeAttachment) *storagev1.VolumeAttachmentStatus { return &o.Status }),
	}
}

func volumeAttachmentColumns() columns.Printer {
	spec := storagev1.VolumeAttachmentSpec{}.SwaggerDoc()
	attacher := columns.Text("Attacher", spec["attacher"])
	attacher.Format = "name" // as in kube-apiserver; kubectl ignores it
	return columns.Show(func(a *storagev1.VolumeAttachment, now time.Time) []any {
		volume := ""
		if a.Spec.Source.PersistentVolumeName != nil {
			volume = *a.Spec.Source.PersistentVolumeName
		}
		return []any{a.Name, a.Spec.Attacher, volume, a.Spec.NodeName, a.Status.Attached, columns.AgeOf(a, now)}
	}, columns.Name(), attacher, columns.Text("PV", storagev1.VolumeAttachmentSource{}.SwaggerDoc()["persistentVolumeName"]),
		columns.Text("Node", spec["nodeName"]), columns.YesNo("Attached", storagev1.VolumeAttachmentStatus{}.SwaggerDoc()["attached"]), columns.Age())
}

func defaultVolumeAttachment(a *storagev1.VolumeAttachment) {
	if inline := a.Spec.Source.InlineVolumeSpec; inline != nil {
		defaults.Milli(inline.Capacity)
		defaults.VolumeSource(&inline.PersistentVolumeSource)
	}
}

// inlineVolumeSpec checks the volume of an attachment without a PersistentVolume. It must use a storage driver, and cannot have
// fields for claims.
func inlineVolumeSpec(s *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	const never = "may not be specified in the context of inline volumes"
	var errs field.ErrorList
	if len(s.AccessModes) == 0 {
		errs = append(errs, field.Required(at.Child("accessModes"), ""))
	}
	errs = append(errs, validate.AccessModes(s.AccessModes, at.Child("accessModes"))...)
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
	return append(errs, validate.VolumeKind(s, "", at)...)
}

func validateVolumeAttachment(a *storagev1.VolumeAttachment) field.ErrorList {
	errs := validate.ObjectMeta(&a.ObjectMeta, validate.ClusterScoped, validation.NameIsDNSSubdomain)
	spec := field.NewPath("spec")
	errs = append(errs, validate.DriverName(a.Spec.Attacher, spec.Child("attacher"))...)
	errs = append(errs, attachmentSource(&a.Spec.Source, spec.Child("source"))...)
	errs = append(errs, validate.DnsSubdomain(a.Spec.NodeName, spec.Child("nodeName"))...)
	status := field.NewPath("status")
	if bytesOf(a.Status.AttachmentMetadata) > maxParameterBytes {
		errs = append(errs, field.TooLong(status.Child("attachmentMetadata"), "", maxParameterBytes))
	}
	errs = append(errs, volumeError(a.Status.AttachError, status.Child("attachError"))...)
	return append(errs, volumeError(a.Status.DetachError, status.Child("detachError"))...)
}

func attachmentSource(s *storagev1.VolumeAttachmentSource, path *field.Path) field.ErrorList {
	const exactlyOne = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
	switch {
	case s.InlineVolumeSpec == nil && s.PersistentVolumeName == nil:
		return field.ErrorList{field.Required(path, exactlyOne)}
	case s.InlineVolumeSpec != nil && s.PersistentVolumeName != nil:
		return field.ErrorList{field.Forbidden(path, exactlyOne)}
	case s.InlineVolumeSpec != nil:
		return inlineVolumeSpec(s.InlineVolumeSpec, path.Child("inlineVolumeSpec"))
	case *s.PersistentVolumeName == "":
		return field.ErrorList{field.Required(path.Child("persistentVolumeName"), "must specify non empty persistentVolumeName")}
	}
	return validate.DnsSubdomain(*s.PersistentVolumeName, path.Child("persistentVolumeName"))
}

func volumeError(e *storagev1.VolumeError, path *field.Path) field.ErrorList {
	if e == nil {
		return nil
	}
	var errs field.ErrorList
	if len(e.Message) > maxVolumeErrorBytes {
		errs = append(errs, field.TooLong(path.Child("message"), "", maxVolumeErrorBytes))
	}
	if e.ErrorCode != nil && *e.ErrorCode < 0 {
		errs = append(errs, field.Invalid(path.Child("errorCode"), *e.ErrorCode, utilvalidation.InclusiveRangeError(0, math.MaxInt32)))
	}
	return errs
}

func validateVolumeAttachmentUpdate(a, old *storagev1.VolumeAttachment) field.ErrorList {
	return append(validateVolumeAttachment(a), validate.Immutable(a.Spec, old.Spec, field.NewPath("spec"))...)
}
