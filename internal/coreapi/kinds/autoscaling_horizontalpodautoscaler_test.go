package kinds_test

import (
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestAutoscalers(t *testing.T) {
	scaling := func(more string) *autoscalingv2.HorizontalPodAutoscaler {
		return kindtest.Decode[autoscalingv2.HorizontalPodAutoscaler](t, "metadata: {name: a, namespace: ns}\nspec: {"+more+"}")
	}
	const web = "scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, "
	kindtest.Refuses(t, []kindtest.Create{
		{"nothing, to nothing", scaling("minReplicas: 3"), []string{"spec.maxReplicas: Required value",
			"spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`", "spec.scaleTargetRef.kind: Required value",
			"spec.scaleTargetRef.name: Required value", `spec.scaleTargetRef.apiVersion: Invalid value: "": apiVersion must specify API group`}},
		{"to zero by its own pods", scaling(web + "minReplicas: 0, maxReplicas: 1"), []string{
			"spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas"}},
		{"metrics", scaling(web + "maxReplicas: 1, metrics: [{type: Pods}, {type: Resource, resource: {name: cpu, target: {type: Utilization}}}, " +
			"{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 0, averageValue: 1}}, pods: {metric: {name: q}, target: {type: AverageValue, averageValue: 1}}}, " +
			"{type: External, external: {metric: {name: a/b}, target: {type: Most, value: -1}}}, {type: Magic}]"), []string{
			"spec.metrics[0].pods: Required value: must populate information for the given metric source",
			"spec.metrics[1].resource.target.averageUtilization: Required value: must set either a target raw value or a target utilization",
			"spec.metrics[2].pods: Forbidden: must populate the given metric source only", "spec.metrics[3].external.metric.name: Invalid value: \"a/b\": may not contain '/'",
			`spec.metrics[3].external.target.type: Invalid value: "Most": must be either Utilization, Value, or AverageValue`,
			`spec.metrics[3].external.target.value: Invalid value: "-1": must be positive`, `spec.metrics[4].type: Unsupported value: "Magic"...`}},
		{"behaviour", scaling(web + "maxReplicas: 1, behavior: {scaleUp: {stabilizationWindowSeconds: 3601, selectPolicy: Best, policies: [{type: Pods, value: 0, periodSeconds: 1801}]}, scaleDown: {policies: []}}"), []string{
			"spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600",
			`spec.behavior.scaleUp.selectPolicy: Unsupported value: "Best": supported values: "Disabled", "Max", "Min"`,
			"spec.behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero",
			"spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
			"spec.behavior.scaleDown.policies: Required value: must specify at least one Policy"}},
	})
}
