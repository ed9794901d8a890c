package resource

import (
	resourcev1 "k8s.io/api/resource/v1"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{
		Version: resourcev1.SchemeGroupVersion, AddToScheme: resourcev1.AddToScheme, Priority: 16200,
		Resources: []registry.Resource{
			deviceClassResource(), deviceTaintRuleResource(), resourceClaimResource(), resourceClaimTemplateResource(),
			resourceSliceResource(),
		},
	}
}
