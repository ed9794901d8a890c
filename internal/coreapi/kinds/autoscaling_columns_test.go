package kinds_test

import (
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestAutoscalerTable(t *testing.T) {
	hpa := func(name, metrics, current string) string {
		return "metadata: {name: " + name + "}\nspec: {minReplicas: 1, maxReplicas: 5, scaleTargetRef: {kind: Deployment, name: web}, metrics: [" + metrics + "]}\n" +
			"status: {desiredReplicas: 2, currentReplicas: 2, currentMetrics: [" + current + "]}"
	}
	const cpu = "{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}"
	kindtest.Table[autoscalingv2.HorizontalPodAutoscaler](t,
		hpa("unknown", cpu, ""), hpa("cpu", cpu, "{type: Resource, resource: {name: cpu, current: {averageUtilization: 40}}}"), hpa("none", "", ""),
		hpa("memory", "{type: Resource, resource: {name: memory, target: {type: AverageValue, averageValue: 1Gi}}}", "{type: Resource, resource: {name: memory, current: {averageValue: 512Mi}}}"),
		hpa("pods", "{type: Pods, pods: {metric: {name: q}, target: {type: AverageValue, averageValue: 10}}}", "{type: Pods, pods: {metric: {name: q}, current: {averageValue: 7}}}"),
		hpa("object", "{type: Object, object: {metric: {name: q}, describedObject: {kind: Service, name: s}, target: {type: Value, value: 10}}}", "{type: Object, object: {metric: {name: q}, describedObject: {kind: Service, name: s}, current: {value: 7}}}"),
		hpa("outside", "{type: External, external: {metric: {name: q}, target: {type: AverageValue, averageValue: 10}}}", ""),
		hpa("container", "{type: ContainerResource, containerResource: {name: cpu, container: c, target: {type: Utilization}}}", ""),
		hpa("many", cpu+", "+cpu+", "+cpu, ""), hpa("odd", "{type: Resource}", ""))
}
