// Package events defines the kinds of the API group events.k8s.io, one per file.
package events

import (
	eventsv1 "k8s.io/api/events/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{
		Version: eventsv1.SchemeGroupVersion, AddToScheme: eventsv1.AddToScheme, Priority: 17750,
		Register: addEventConversions,
		Virtual: []registry.Virtual{{
			Name: "events", Storage: newEvents, Named: true,
			Samples: []string{
				"metadata: {name: a, namespace: ns}\n" +
					"eventTime: '2026-01-01T00:00:00.000000Z'\n" +
					"type: Normal\n" +
					"reason: R\n" +
					"action: A\n" +
					"reportingController: c\n" +
					"reportingInstance: i\n" +
					"regarding: {namespace: ns}",
			},
		}},
	}
}
