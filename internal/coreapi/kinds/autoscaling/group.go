// Package autoscaling defines the kinds of the API group autoscaling, one per file.
package autoscaling

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/runtime"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{
		Version: autoscalingv2.SchemeGroupVersion, AddToScheme: autoscalingv2.AddToScheme, Priority: 16900,
		Resources: []registry.Resource{
			horizontalPodAutoscalerResource(),
		},
	}
}

func V1Group() registry.Group {
	return registry.Group{ // serves the objects of v2; see Resource.AlsoServedIn
		Version: autoscalingv1.SchemeGroupVersion, AddToScheme: autoscalingv1.AddToScheme, Priority: 16900,
		Register: addAutoscalerConversions, Types: []runtime.Object{&autoscalingv1.Scale{}},
	}
}
