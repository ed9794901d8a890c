package autoscaling

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"

	"portico.dev/internal/coreapi/defaults"
)

// cpuTarget is what an autoscaler without metrics keeps the use of CPU at, in percent of what is requested.
const cpuTarget = 80

// defaultOldAutoscaler gets its target of CPU when it is converted: only then the metrics in its annotations are known.
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

// cpuMetric keeps the use of CPU at a share, in percent, of what the pods request.
func cpuMetric(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name:   corev1.ResourceCPU,
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
		},
	}
}

// defaultCPUMetric is the metric of an autoscaler that names none.
func defaultCPUMetric() autoscalingv2.MetricSpec { return cpuMetric(cpuTarget) }

// rulePeriod is how long one policy of scaling looks back, in seconds.
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

// scaleDown leaves the window open: the controller has a flag for it.
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
