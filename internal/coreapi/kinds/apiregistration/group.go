// Package apiregistration defines the kinds of the API group apiregistration.k8s.io, one per file.
package apiregistration

import (
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{
		Version: apiregistrationv1.SchemeGroupVersion, AddToScheme: apiregistrationv1.AddToScheme, Priority: 17900,
		Required: "without it no extension server can be registered",
		Resources: []registry.Resource{
			apiServiceResource(),
		},
	}
}
