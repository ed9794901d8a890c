// Package storage defines the kinds of the API group storage.k8s.io, one per file.
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
