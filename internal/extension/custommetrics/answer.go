package custommetrics

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	customv1beta1 "k8s.io/metrics/pkg/apis/custom_metrics/v1beta1"
	customv1beta2 "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	externalv1beta1 "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
)

func typeMeta(gv schema.GroupVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: gv.String(), Kind: kind}
}

func listV1beta2(q CustomQuery, values []CustomValue) (runtime.Object, error) {
	selector, err := structured(q.Series)
	if err != nil {
		return nil, err
	}
	list := &customv1beta2.MetricValueList{
		TypeMeta: typeMeta(customv1beta2.SchemeGroupVersion, "MetricValueList"),
		Items:    make([]customv1beta2.MetricValue, len(values)),
	}
	for i, v := range values {
		list.Items[i] = customv1beta2.MetricValue{
			DescribedObject: reference(v.Object),
			Metric:          customv1beta2.MetricIdentifier{Name: q.Name, Selector: selector},
			Timestamp:       metav1.NewTime(v.Timestamp), WindowSeconds: seconds(v.Window), Value: v.Value,
		}
	}
	return list, nil
}

func listV1beta1(q CustomQuery, values []CustomValue) (runtime.Object, error) {
	selector, err := structured(q.Series)
	if err != nil {
		return nil, err
	}
	list := &customv1beta1.MetricValueList{
		TypeMeta: typeMeta(customv1beta1.SchemeGroupVersion, "MetricValueList"),
		Items:    make([]customv1beta1.MetricValue, len(values)),
	}
	for i, v := range values {
		list.Items[i] = customv1beta1.MetricValue{
			DescribedObject: reference(v.Object), MetricName: q.Name, Selector: selector,
			Timestamp: metav1.NewTime(v.Timestamp), WindowSeconds: seconds(v.Window), Value: v.Value,
		}
	}
	return list, nil
}

func listExternal(metric string, values []ExternalValue) runtime.Object {
	list := &externalv1beta1.ExternalMetricValueList{
		TypeMeta: typeMeta(externalv1beta1.SchemeGroupVersion, "ExternalMetricValueList"),
		Items:    make([]externalv1beta1.ExternalMetricValue, len(values)),
	}
	for i, v := range values {
		list.Items[i] = externalv1beta1.ExternalMetricValue{
			MetricName: metric, MetricLabels: v.Labels,
			Timestamp: metav1.NewTime(v.Timestamp), WindowSeconds: seconds(v.Window), Value: v.Value,
		}
	}
	return list
}

func reference(o Object) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}
}

func seconds(d time.Duration) *int64 {
	if d <= 0 {
		return nil
	}
	s := int64(d / time.Second)
	return &s
}

// structured is a selector as the kinds carry it, nil for one that selects everything.
func structured(s labels.Selector) (*metav1.LabelSelector, error) {
	if s.Empty() {
		return nil, nil
	}
	out, err := metav1.ParseToLabelSelector(s.String())
	if err != nil {
		return nil, apierrors.NewBadRequest("metricLabelSelector: " + err.Error())
	}
	return out, nil
}
