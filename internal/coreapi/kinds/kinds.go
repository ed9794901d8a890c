// Package kinds lists the API groups that every server needs. Each group is a package below this one. Package cluster lists the
// groups that only clusters with nodes need.
package kinds

import (
	"portico.dev/internal/coreapi/kinds/admissionregistration"
	"portico.dev/internal/coreapi/kinds/apiregistration"
	"portico.dev/internal/coreapi/kinds/authentication"
	"portico.dev/internal/coreapi/kinds/authorization"
	"portico.dev/internal/coreapi/kinds/clusters"
	"portico.dev/internal/coreapi/kinds/coordination"
	"portico.dev/internal/coreapi/kinds/core"
	"portico.dev/internal/coreapi/kinds/discovery"
	"portico.dev/internal/coreapi/kinds/events"
	"portico.dev/internal/coreapi/kinds/flowcontrol"
	"portico.dev/internal/coreapi/kinds/networking"
	rbackinds "portico.dev/internal/coreapi/kinds/rbac"
	"portico.dev/internal/coreapi/kinds/routing"
	"portico.dev/internal/coreapi/registry"
)

// Base returns the groups that the server, its extension servers or its clients require.
//
// Whether PUT can create an object, or replace one without a resourceVersion, depends on the kind as in kube-apiserver, because
// clients rely on both.
func Base() []registry.Group {
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
		networking.Group(),
		routing.Group(),
		clusters.Group(),
	}
}
