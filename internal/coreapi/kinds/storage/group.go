// Package storage has the kinds of storage.k8s.io, a file for each.
package storage

import (
	storagev1 "k8s.io/api/storage/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{
		Version: storagev1.SchemeGroupVersion, AddToScheme: storagev1.AddToScheme, Priority: 16400,
		Resources: []registry.Resource{
			storageClassResource(), volumeAttachmentResource(), csiDriverResource(), csiNodeResource(),
			csiStorageCapacityResource(), volumeAttributesClassResource(),
		},
	}
}
