package coreapi

import storagev1 "k8s.io/api/storage/v1"

func storageResources() []resource {
	return []resource{
		{
			name: "storageclasses", singular: "storageclass", shortNames: []string{"sc"}, clusterScoped: true,
			object: &storagev1.StorageClass{}, list: &storagev1.StorageClassList{}, answersDeleted: true, cached: true, blindUpdate: true,
		},
		{
			name: "volumeattachments", singular: "volumeattachment", clusterScoped: true,
			object: &storagev1.VolumeAttachment{}, list: &storagev1.VolumeAttachmentList{}, answersDeleted: true, cached: true,
			spec:   specOf(func(o *storagev1.VolumeAttachment) *storagev1.VolumeAttachmentSpec { return &o.Spec }),
			status: statusOf(func(o *storagev1.VolumeAttachment) *storagev1.VolumeAttachmentStatus { return &o.Status }),
		},
		{
			name: "csidrivers", singular: "csidriver", clusterScoped: true,
			object: &storagev1.CSIDriver{}, list: &storagev1.CSIDriverList{}, answersDeleted: true, cached: true,
			spec: specOf(func(o *storagev1.CSIDriver) *storagev1.CSIDriverSpec { return &o.Spec }), prepareUpdate: countDriverChanges,
		},
		{
			name: "csinodes", singular: "csinode", clusterScoped: true,
			object: &storagev1.CSINode{}, list: &storagev1.CSINodeList{}, answersDeleted: true, cached: true,
			spec:          specOf(func(o *storagev1.CSINode) *storagev1.CSINodeSpec { return &o.Spec }),
			status:        statusOf(func(o *storagev1.CSINode) *storagev1.CSINodeStatus { return &o.Status }),
			prepareStatus: dropStorageHealth,
		},
		{
			name: "csistoragecapacities", singular: "csistoragecapacity",
			object: &storagev1.CSIStorageCapacity{}, list: &storagev1.CSIStorageCapacityList{},
		},
		{
			name: "volumeattributesclasses", singular: "volumeattributesclass", shortNames: []string{"vac"}, clusterScoped: true,
			object: &storagev1.VolumeAttributesClass{}, list: &storagev1.VolumeAttributesClassList{}, answersDeleted: true, blindUpdate: true,
		},
	}
}
