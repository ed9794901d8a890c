// Package events has the kinds of events.k8s.io, a file for each.
package events

import (
	eventsv1 "k8s.io/api/events/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{
		Version: eventsv1.SchemeGroupVersion, AddToScheme: eventsv1.AddToScheme, Priority: 17750,
		Register: addEventConversions,
		Virtual:  []registry.Virtual{{Name: "events", Storage: newEvents, Named: true}},
	}
}
