package defaults

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
)

// cpuTarget is what an autoscaler without metrics keeps the use of CPU at, in percent of what is requested.
const cpuTarget = 80

// DefaultOldAutoscaler gets its target of CPU when it is converted: only then the metrics in its annotations are known.
func DefaultOldAutoscaler(a *autoscalingv1.HorizontalPodAutoscaler) {
	point(&a.Spec.MinReplicas, 1)
}

func DefaultHorizontalPodAutoscaler(a *autoscalingv2.HorizontalPodAutoscaler) {
	point(&a.Spec.MinReplicas, 1)
	if len(a.Spec.Metrics) == 0 {
		a.Spec.Metrics = []autoscalingv2.MetricSpec{CPUMetric(cpuTarget)}
	}
	if b := a.Spec.Behavior; b != nil {
		b.ScaleUp = scalingRules(b.ScaleUp, scaleUp())
		b.ScaleDown = scalingRules(b.ScaleDown, scaleDown())
	}
}

// CPUMetric keeps the use of CPU at a share, in percent, of what the pods request.
func CPUMetric(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name:   corev1.ResourceCPU,
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
		},
	}
}

// DefaultCPUMetric is the metric of an autoscaler that names none.
func DefaultCPUMetric() autoscalingv2.MetricSpec { return CPUMetric(cpuTarget) }

// rulePeriod is how long one policy of scaling looks back, in seconds.
const rulePeriod = 15

func scaleUp() *autoscalingv2.HPAScalingRules {
	rules := &autoscalingv2.HPAScalingRules{Policies: []autoscalingv2.HPAScalingPolicy{
		{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: rulePeriod},
		{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: rulePeriod},
	}}
	point(&rules.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	point(&rules.StabilizationWindowSeconds, 0)
	return rules
}

// scaleDown leaves the window open: the controller has a flag for it.
func scaleDown() *autoscalingv2.HPAScalingRules {
	rules := &autoscalingv2.HPAScalingRules{Policies: []autoscalingv2.HPAScalingPolicy{
		{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: rulePeriod},
	}}
	point(&rules.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	return rules
}

func scalingRules(said, otherwise *autoscalingv2.HPAScalingRules) *autoscalingv2.HPAScalingRules {
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
