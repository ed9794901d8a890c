// Package events has the kinds of the group of events: a file for each, which says everything about it.
package events

import (
	eventsv1 "k8s.io/api/events/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{Version: eventsv1.SchemeGroupVersion, AddToScheme: eventsv1.AddToScheme, Register: addEventConversions}
}
