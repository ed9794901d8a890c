package coreapi

import (
	storagev1 "k8s.io/api/storage/v1"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/validate"
)

func storageClassResource() resource {
	return resource{
		name: "storageclasses", singular: "storageclass", shortNames: []string{"sc"}, clusterScoped: true,
		object: &storagev1.StorageClass{}, list: &storagev1.StorageClassList{}, answersDeleted: true, cached: true, blindUpdate: true,
		rules:    validate.Changing(validate.ValidateStorageClass, validate.ValidateStorageClassUpdate),
		defaults: defaults.Of(defaults.DefaultStorageClass),
		warnings: validate.Warn(validate.StorageClassWarnings),
		columns:  columns.StorageClassColumns,
	}
}

func volumeAttachmentResource() resource {
	return resource{
		name: "volumeattachments", singular: "volumeattachment", clusterScoped: true,
		object: &storagev1.VolumeAttachment{}, list: &storagev1.VolumeAttachmentList{}, answersDeleted: true, cached: true,
		rules:    validate.Full(validate.ValidateVolumeAttachment, validate.ValidateVolumeAttachmentUpdate, validate.ValidateVolumeAttachmentUpdate),
		defaults: defaults.Of(defaults.DefaultVolumeAttachment),
		columns:  columns.VolumeAttachmentColumns,
		spec:     specOf(func(o *storagev1.VolumeAttachment) *storagev1.VolumeAttachmentSpec { return &o.Spec }),
		status:   statusOf(func(o *storagev1.VolumeAttachment) *storagev1.VolumeAttachmentStatus { return &o.Status }),
	}
}

func csiDriverResource() resource {
	return resource{
		name: "csidrivers", singular: "csidriver", clusterScoped: true,
		object: &storagev1.CSIDriver{}, list: &storagev1.CSIDriverList{}, answersDeleted: true, cached: true,
		rules:    validate.Changing(validate.ValidateCSIDriver, validate.ValidateCSIDriverUpdate),
		defaults: defaults.Of(defaults.DefaultCSIDriver),
		warnings: validate.Warn(validate.CSIDriverWarnings),
		columns:  columns.CSIDriverColumns,
		spec:     specOf(func(o *storagev1.CSIDriver) *storagev1.CSIDriverSpec { return &o.Spec }), prepareUpdate: countDriverChanges,
	}
}

func csiNodeResource() resource {
	return resource{
		name: "csinodes", singular: "csinode", clusterScoped: true,
		object: &storagev1.CSINode{}, list: &storagev1.CSINodeList{}, answersDeleted: true, cached: true,
		rules:         validate.Changing(validate.ValidateCSINode, validate.ValidateCSINodeUpdate),
		columns:       columns.CSINodeColumns,
		spec:          specOf(func(o *storagev1.CSINode) *storagev1.CSINodeSpec { return &o.Spec }),
		status:        statusOf(func(o *storagev1.CSINode) *storagev1.CSINodeStatus { return &o.Status }),
		prepareStatus: dropStorageHealth,
	}
}

func csiStorageCapacityResource() resource {
	return resource{
		name: "csistoragecapacities", singular: "csistoragecapacity",
		object: &storagev1.CSIStorageCapacity{}, list: &storagev1.CSIStorageCapacityList{},
		rules:   validate.Changing(validate.ValidateCSIStorageCapacity, validate.ValidateCSIStorageCapacityUpdate),
		columns: columns.CSIStorageCapacityColumns,
	}
}

func volumeAttributesClassResource() resource {
	return resource{
		name: "volumeattributesclasses", singular: "volumeattributesclass", shortNames: []string{"vac"}, clusterScoped: true,
		object: &storagev1.VolumeAttributesClass{}, list: &storagev1.VolumeAttributesClassList{}, answersDeleted: true, blindUpdate: true,
		rules:   validate.Changing(validate.ValidateVolumeAttributesClass, validate.ValidateVolumeAttributesClassUpdate),
		columns: columns.VolumeAttributesClassColumns,
	}
}
