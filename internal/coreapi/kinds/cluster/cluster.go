// Package cluster lists the API groups that only clusters with nodes need: workloads, volumes, devices, scheduling, and the
// certificates of nodes and pods. A program that does not import it serves only the groups of package kinds.
package cluster

import (
	"portico.dev/internal/coreapi/kinds"
	"portico.dev/internal/coreapi/kinds/apps"
	"portico.dev/internal/coreapi/kinds/autoscaling"
	"portico.dev/internal/coreapi/kinds/batch"
	"portico.dev/internal/coreapi/kinds/certificates"
	"portico.dev/internal/coreapi/kinds/node"
	"portico.dev/internal/coreapi/kinds/policy"
	"portico.dev/internal/coreapi/kinds/resource"
	"portico.dev/internal/coreapi/kinds/scheduling"
	storagekinds "portico.dev/internal/coreapi/kinds/storage"
	"portico.dev/internal/coreapi/kinds/storagemigration"
	"portico.dev/internal/coreapi/registry"
)

// All returns the groups of package kinds and the groups that only clusters with nodes need.
func All() []registry.Group {
	return append(kinds.Base(),
		apps.Group(),
		autoscaling.Group(),
		autoscaling.V1Group(),
		batch.Group(),
		certificates.Group(),
		policy.Group(),
		storagekinds.Group(),
		scheduling.Group(),
		node.Group(),
		resource.Group(),
		storagemigration.Group(),
	)
}
