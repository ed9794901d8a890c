// Package apiregistration has the kinds of the group of apiregistration: a file for each, which says everything about it.
package apiregistration

import (
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{Version: apiregistrationv1.SchemeGroupVersion, AddToScheme: apiregistrationv1.AddToScheme, Resources: []registry.Resource{apiServiceResource()}}
}
