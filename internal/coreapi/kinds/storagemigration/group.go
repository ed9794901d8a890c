// Package storagemigration defines the kind of the API group storagemigration.k8s.io: requests to rewrite all objects of a
// resource.
package storagemigration

import (
	storagemigrationv1 "k8s.io/api/storagemigration/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{
		Version: storagemigrationv1.SchemeGroupVersion, AddToScheme: storagemigrationv1.AddToScheme, Priority: 15800,
		Resources: []registry.Resource{storageVersionMigrationResource()},
	}
}
