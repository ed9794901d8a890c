// Package storage has the kinds of the group of storage: a file for each, which says everything about it.
package storage

import (
	storagev1 "k8s.io/api/storage/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{Version: storagev1.SchemeGroupVersion, AddToScheme: storagev1.AddToScheme, Resources: []registry.Resource{storageClassResource(), volumeAttachmentResource(), csiDriverResource(), csiNodeResource(), csiStorageCapacityResource(), volumeAttributesClassResource()}}
}
