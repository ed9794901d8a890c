// Package kinds lists the groups that are served here. Each is a package below this one.
package kinds

import (
	"portico.dev/internal/coreapi/kinds/admissionregistration"
	"portico.dev/internal/coreapi/kinds/apiregistration"
	"portico.dev/internal/coreapi/kinds/apps"
	"portico.dev/internal/coreapi/kinds/authentication"
	"portico.dev/internal/coreapi/kinds/authorization"
	"portico.dev/internal/coreapi/kinds/autoscaling"
	"portico.dev/internal/coreapi/kinds/batch"
	"portico.dev/internal/coreapi/kinds/certificates"
	"portico.dev/internal/coreapi/kinds/coordination"
	"portico.dev/internal/coreapi/kinds/core"
	"portico.dev/internal/coreapi/kinds/discovery"
	"portico.dev/internal/coreapi/kinds/events"
	"portico.dev/internal/coreapi/kinds/flowcontrol"
	"portico.dev/internal/coreapi/kinds/networking"
	"portico.dev/internal/coreapi/kinds/node"
	"portico.dev/internal/coreapi/kinds/policy"
	rbackinds "portico.dev/internal/coreapi/kinds/rbac"
	"portico.dev/internal/coreapi/kinds/scheduling"
	storagekinds "portico.dev/internal/coreapi/kinds/storage"
	"portico.dev/internal/coreapi/registry"
)

// All is the table of everything that is served here, in the order in which clients should prefer the groups. The file
// of a kind says everything about it; a new kind is a new file.
//
// What may be created by PUT, and what may be replaced without a resourceVersion, is upstream's choice per kind:
// clients have come to rely on both.
func All() []registry.Group {
	return []registry.Group{
		core.Group(),
		apiregistration.Group(),
		events.Group(),
		authentication.Group(),
		authorization.Group(),
		rbackinds.Group(),
		admissionregistration.Group(),
		coordination.Group(),
		discovery.Group(),
		flowcontrol.Group(),
		apps.Group(),
		autoscaling.Group(),
		autoscaling.V1Group(),
		batch.Group(),
		certificates.Group(),
		networking.Group(),
		policy.Group(),
		storagekinds.Group(),
		scheduling.Group(),
		node.Group(),
	}
}
