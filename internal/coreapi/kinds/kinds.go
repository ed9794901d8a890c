// Package kinds lists the groups that every front door serves. Each is a package below this one; those that only clusters
// with nodes need are listed by package cluster.
package kinds

import (
	"portico.dev/internal/coreapi/kinds/admissionregistration"
	"portico.dev/internal/coreapi/kinds/apiregistration"
	"portico.dev/internal/coreapi/kinds/authentication"
	"portico.dev/internal/coreapi/kinds/authorization"
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

// Base are the groups without which a front door cannot work, or its extension servers and clients cannot.
//
// What may be created by PUT, and what may be replaced without a resourceVersion, is upstream's choice per kind: clients
// have come to rely on both.
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
	}
}
