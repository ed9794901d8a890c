package kinds_test

import (
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	quantities "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"portico.dev/internal/coreapi/kinds/autoscaling"
)

// drawAutoscaler generates an autoscaler whose converted fields pass validation.
func drawAutoscaler(t *rapid.T) *autoscalingv2.HorizontalPodAutoscaler {
	number := func(name string) int32 { return rapid.Int32Range(1, 1000).Draw(t, name) }
	amount := func(name string) *quantities.Quantity {
		return quantities.NewMilliQuantity(rapid.Int64Range(1, 1<<40).Draw(t, name), quantities.DecimalSI)
	}
	maybe := func(name string) bool { return rapid.Bool().Draw(t, name) }
	word := func(name string) string { return rapid.StringMatching(`[a-z]{1,8}`).Draw(t, name) }
	id := func() autoscalingv2.MetricIdentifier {
		m := autoscalingv2.MetricIdentifier{Name: word("metric")}
		if maybe("selected") {
			m.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{word("key"): word("value")}}
		}
		return m
	}
	use := func() autoscalingv2.MetricTarget {
		if maybe("by use") {
			n := number("use")
			return autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &n}
		}
		return autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: amount("average")}
	}
	value := func() autoscalingv2.MetricTarget {
		if maybe("by value") {
			return autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: amount("value")}
		}
		return autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: amount("average")}
	}
	a := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: word("name")}}
	if maybe("annotated") {
		a.Annotations = map[string]string{word("annotation"): word("text")}
	}
	a.Spec.MaxReplicas = number("most")
	a.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: word("target")}
	for range rapid.IntRange(0, 3).Draw(t, "metrics") {
		m := autoscalingv2.MetricSpec{}
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			m.Type, m.Pods = autoscalingv2.PodsMetricSourceType, &autoscalingv2.PodsMetricSource{
				Metric: id(), Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: amount("average")},
			}
		case 1:
			m.Type, m.Object = autoscalingv2.ObjectMetricSourceType, &autoscalingv2.ObjectMetricSource{
				DescribedObject: a.Spec.ScaleTargetRef, Metric: id(), Target: value(),
			}
		case 2:
			m.Type, m.External = autoscalingv2.ExternalMetricSourceType, &autoscalingv2.ExternalMetricSource{Metric: id(), Target: value()}
		case 3:
			m.Type, m.Resource = autoscalingv2.ResourceMetricSourceType, &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceMemory, Target: use()}
		case 4:
			m.Type, m.ContainerResource = autoscalingv2.ContainerResourceMetricSourceType, &autoscalingv2.ContainerResourceMetricSource{
				Name: corev1.ResourceCPU, Container: word("container"), Target: use(),
			}
		}
		a.Spec.Metrics = append(a.Spec.Metrics, m)
	}
	if n := number("cpu"); len(a.Spec.Metrics) == 0 || maybe("and cpu") {
		a.Spec.Metrics = append(a.Spec.Metrics, autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &n},
		}})
	}
	if maybe("behaves") {
		window, policy := number("window"), autoscalingv2.MinChangePolicySelect
		a.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: &autoscalingv2.HPAScalingRules{
			StabilizationWindowSeconds: &window, SelectPolicy: &policy, Tolerance: amount("tolerance"),
			Policies: []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PodsScalingPolicy, Value: number("pods"), PeriodSeconds: number("period")}},
		}}
	}
	if maybe("was seen") {
		n := number("generation now")
		seen := int64(n)
		a.Status = autoscalingv2.HorizontalPodAutoscalerStatus{
			ObservedGeneration: &seen, CurrentReplicas: number("current"), DesiredReplicas: number("desired"),
			Conditions: []autoscalingv2.HorizontalPodAutoscalerCondition{{Type: autoscalingv2.AbleToScale, Status: corev1.ConditionTrue, Reason: word("reason"), ObservedGeneration: &seen}},
			CurrentMetrics: []autoscalingv2.MetricStatus{
				{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricStatus{
					Name: corev1.ResourceCPU, Current: autoscalingv2.MetricValueStatus{AverageUtilization: &n, AverageValue: amount("cpu now")},
				}},
				{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricStatus{
					Metric: id(), Current: autoscalingv2.MetricValueStatus{AverageValue: amount("pods now")},
				}},
				{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricStatus{
					Metric: id(), Current: autoscalingv2.MetricValueStatus{Value: amount("outside now"), AverageValue: amount("outside of each")},
				}},
			},
		}
	}
	return a
}

func TestAutoscalerConversionThroughV1IsLossless(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawAutoscaler(t)
		before := in.DeepCopy()
		var between autoscalingv1.HorizontalPodAutoscaler
		if err := autoscaling.AutoscalerToV1(in, &between); err != nil {
			t.Fatal(err)
		}
		if !apiequality.Semantic.DeepEqual(in, before) {
			t.Fatalf("the conversion changed its input to %+v, want %+v", in, before)
		}
		var out autoscalingv2.HorizontalPodAutoscaler
		autoscaling.AutoscalerFromV1(&between, &out)
		if !apiequality.Semantic.DeepEqual(in, &out) {
			t.Fatalf("the conversion through %+v returned %+v, want %+v", between, out, in)
		}
	})
}
