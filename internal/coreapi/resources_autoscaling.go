package coreapi

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/validate"
)

func horizontalPodAutoscalerResource() resource {
	return resource{
		name: "horizontalpodautoscalers", singular: "horizontalpodautoscaler", shortNames: []string{"hpa"}, categories: []string{"all"},
		object: &autoscalingv2.HorizontalPodAutoscaler{}, list: &autoscalingv2.HorizontalPodAutoscalerList{}, blindUpdate: true, generations: true,
		rules:    validate.Full(validate.ValidateHorizontalPodAutoscaler, validate.ValidateHorizontalPodAutoscalerUpdate, validate.ValidateHorizontalPodAutoscalerStatus),
		defaults: defaults.Of(defaults.DefaultHorizontalPodAutoscaler),
		columns:  columns.HorizontalPodAutoscalerColumns,
		spec: specOf(func(o *autoscalingv2.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscalerSpec {
			return &o.Spec
		}),
		status: statusOf(func(o *autoscalingv2.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscalerStatus {
			return &o.Status
		}),
		statusMeta: true, alsoAt: []schema.GroupVersion{autoscalingv1.SchemeGroupVersion},
		prepareCreate: dropAutoscalerAnnotations, prepareUpdate: dropAutoscalerAnnotationsAgain, prepareStatus: dropAutoscalerAnnotationsAgain,
	}
}
