package autoscaling

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"

	"portico.dev/internal/coreapi/defaults"
)

// cpuTarget is the CPU target of an autoscaler without metrics, in percent of the requested CPU.
const cpuTarget = 80

// defaultOldAutoscaler does not set the CPU target. Conversion does, because it reads the metrics in the annotations.
func defaultOldAutoscaler(a *autoscalingv1.HorizontalPodAutoscaler) {
	defaults.Point(&a.Spec.MinReplicas, 1)
}

func defaultHorizontalPodAutoscaler(a *autoscalingv2.HorizontalPodAutoscaler) {
	defaults.Point(&a.Spec.MinReplicas, 1)
	if len(a.Spec.Metrics) == 0 {
		a.Spec.Metrics = []autoscalingv2.MetricSpec{cpuMetric(cpuTarget)}
	}
	if b := a.Spec.Behavior; b != nil {
		b.ScaleUp = defaultScalingRules(b.ScaleUp, scaleUp())
		b.ScaleDown = defaultScalingRules(b.ScaleDown, scaleDown())
	}
}

// cpuMetric returns a metric with a target for CPU utilization, in percent of the pods' requests.
func cpuMetric(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name:   corev1.ResourceCPU,
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
		},
	}
}

// defaultCPUMetric returns the metric of an autoscaler that has none.
func defaultCPUMetric() autoscalingv2.MetricSpec { return cpuMetric(cpuTarget) }

// rulePeriod is the default period of a scaling policy, in seconds.
const rulePeriod = 15

func scaleUp() *autoscalingv2.HPAScalingRules {
	rules := &autoscalingv2.HPAScalingRules{Policies: []autoscalingv2.HPAScalingPolicy{
		{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: rulePeriod},
		{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: rulePeriod},
	}}
	defaults.Point(&rules.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	defaults.Point(&rules.StabilizationWindowSeconds, 0)
	return rules
}

// scaleDown leaves the stabilization window unset: the controller has a flag for it.
func scaleDown() *autoscalingv2.HPAScalingRules {
	rules := &autoscalingv2.HPAScalingRules{Policies: []autoscalingv2.HPAScalingPolicy{
		{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: rulePeriod},
	}}
	defaults.Point(&rules.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	return rules
}

func defaultScalingRules(said, otherwise *autoscalingv2.HPAScalingRules) *autoscalingv2.HPAScalingRules {
	if said == nil {
		return otherwise
	}
	if said.SelectPolicy == nil {
		said.SelectPolicy = otherwise.SelectPolicy
	}
	if said.StabilizationWindowSeconds == nil {
		said.StabilizationWindowSeconds = otherwise.StabilizationWindowSeconds
	}
	if said.Policies == nil {
		said.Policies = otherwise.Policies
	}
	return said
}
