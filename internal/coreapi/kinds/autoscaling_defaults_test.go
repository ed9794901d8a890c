package kinds_test

import (
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestAutoscalingWorkloadDefaults(t *testing.T) {
	kindtest.Defaults(t, []kindtest.Default{
		{"an autoscaler without metrics", &autoscalingv2.HorizontalPodAutoscaler{}, "spec: {behavior: {scaleUp: {stabilizationWindowSeconds: 5}}}",
			"metadata: {}\nspec: {minReplicas: 1, maxReplicas: 0, scaleTargetRef: {kind: '', name: ''}, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}], behavior: " +
				"{scaleUp: {stabilizationWindowSeconds: 5, selectPolicy: Max, policies: [{type: Pods, value: 4, periodSeconds: 15}, {type: Percent, value: 100, periodSeconds: 15}]}, " +
				"scaleDown: {selectPolicy: Max, policies: [{type: Percent, value: 100, periodSeconds: 15}]}}}\nstatus: {desiredReplicas: 0, currentMetrics: null}"},
		{"an autoscaler of v1 gets its target when it is converted", &autoscalingv1.HorizontalPodAutoscaler{}, "spec: {maxReplicas: 2}",
			"metadata: {}\nspec: {minReplicas: 1, maxReplicas: 2, scaleTargetRef: {kind: '', name: ''}}\nstatus: {currentReplicas: 0, desiredReplicas: 0}"},
	})
}
