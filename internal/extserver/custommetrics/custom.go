package custommetrics

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	customv1beta1 "k8s.io/metrics/pkg/apis/custom_metrics/v1beta1"
	customv1beta2 "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	externalv1beta1 "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"

	"portico.dev/pkg/extension"
)

// CustomGroup is the API group of metrics that describe objects.
const CustomGroup = "custom.metrics.k8s.io"

// everyObject replaces the name in a path to select objects by label.
const everyObject = "*"

var namespaces = schema.GroupResource{Resource: "namespaces"}

// Custom returns the resources of custom.metrics.k8s.io in both versions. If several sources have a metric, the first one
// serves it.
func Custom(sources ...CustomSource) []extension.Resource {
	c := custom{sources}
	return []extension.Resource{c.version("v1beta2", listV1beta2), c.version("v1beta1", listV1beta1)}
}

type custom struct{ sources []CustomSource }

// answerCustom converts values to the list kind of one version.
type answerCustom func(q CustomQuery, values []CustomValue) (runtime.Object, error)

func (c custom) version(version string, answer answerCustom) extension.Resource {
	return extension.Custom(extension.CustomDefinition{
		GroupVersion: schema.GroupVersion{Group: CustomGroup, Version: version},
		Resources:    c.resources,
		Serve: func(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo) {
			list, err := c.serve(r, info, answer)
			if err != nil {
				extension.WriteError(w, r, err)
				return
			}
			extension.WriteObject(w, r, http.StatusOK, list)
		},
	})
}

// resources returns the discovery entries: one for each pair of resource and metric of all sources.
func (c custom) resources() []metav1.APIResource {
	var out []metav1.APIResource
	for _, s := range c.sources {
		for _, m := range s.CustomMetrics() {
			out = append(out, metav1.APIResource{
				Name: m.Resource.String() + "/" + m.Name, Namespaced: m.Namespaced,
				Kind: "MetricValueList", Verbs: metav1.Verbs{"get"},
			})
		}
	}
	return sorted(out)
}

// sorted sorts entries by name and removes duplicates. The entry of the earliest source remains.
func sorted(resources []metav1.APIResource) []metav1.APIResource {
	slices.SortStableFunc(resources, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(resources, func(a, b metav1.APIResource) bool { return a.Name == b.Name })
}

func (c custom) serve(r *http.Request, info *apirequest.RequestInfo, answer answerCustom) (runtime.Object, error) {
	q, err := customQuery(r, info)
	if err != nil {
		return nil, err
	}
	candidates := make([]candidate[CustomValue], len(c.sources))
	for i, s := range c.sources {
		candidates[i] = candidate[CustomValue]{s.Source, func(ctx context.Context) ([]CustomValue, error) { return s.CustomValues(ctx, q) }}
	}
	values, err := firstAnswer(r.Context(), candidates, metricNotFound(q.Resource, q.Name))
	if err != nil {
		return nil, err
	}
	if q.Object != "" && len(values) == 0 {
		return nil, objectNotMeasured(q)
	}
	return answer(q, values)
}

// customQuery parses the query of a request.
func customQuery(r *http.Request, info *apirequest.RequestInfo) (CustomQuery, error) {
	if r.Method != http.MethodGet {
		return CustomQuery{}, apierrors.NewMethodNotSupported(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Verb)
	}
	q := CustomQuery{Namespace: info.Namespace, Object: info.Name}
	q.Resource, q.Name, q.Namespaced = schema.ParseGroupResource(info.Resource), info.Subresource, info.Namespace != ""
	switch {
	case info.Resource == "metrics" && info.Namespace != "" && info.Subresource == "":
		// A metric of a namespace has a separate path, because /namespaces/NS/METRIC would be a list of METRICs in NS.
		q = CustomQuery{Metric: Metric{Resource: namespaces, Name: info.Name}, Object: info.Namespace}
	case info.Subresource == "" || len(info.Parts) != 3:
		return q, notFound("the server could not find the requested resource")
	}
	if q.Name == "" || q.Object == "" {
		return q, notFound("the server could not find the requested resource")
	}
	var err error
	parameters := r.URL.Query()
	if q.Objects, err = selector(parameters.Get("labelSelector"), "labelSelector"); err != nil {
		return q, err
	}
	if q.Series, err = selector(parameters.Get("metricLabelSelector"), "metricLabelSelector"); err != nil {
		return q, err
	}
	if q.Object == everyObject {
		q.Object = ""
	}
	if q.Resource == namespaces && q.Object == "" {
		return q, apierrors.NewBadRequest("cannot fetch metrics for multiple namespaces at once")
	}
	return q, nil
}

func selector(text, parameter string) (labels.Selector, error) {
	s, err := labels.Parse(text)
	if err != nil {
		return nil, apierrors.NewBadRequest(parameter + ": " + err.Error())
	}
	return s, nil
}

// ExternalGroup is the API group of metrics that are not related to API objects.
const ExternalGroup = "external.metrics.k8s.io"

// External returns the resource of external.metrics.k8s.io. If several sources have a metric, the first one serves it.
func External(sources ...ExternalSource) extension.Resource {
	e := external{sources}
	return extension.Custom(extension.CustomDefinition{
		GroupVersion: externalv1beta1.SchemeGroupVersion,
		Resources:    e.resources,
		Serve: func(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo) {
			list, err := e.serve(r, info)
			if err != nil {
				extension.WriteError(w, r, err)
				return
			}
			extension.WriteObject(w, r, http.StatusOK, list)
		},
	})
}

type external struct{ sources []ExternalSource }

func (e external) resources() []metav1.APIResource {
	var out []metav1.APIResource
	for _, s := range e.sources {
		for _, name := range s.ExternalMetrics() {
			// All adapters list the verb get, although the requests are lists.
			out = append(out, metav1.APIResource{Name: name, Namespaced: true, Kind: "ExternalMetricValueList", Verbs: metav1.Verbs{"get"}})
		}
	}
	return sorted(out)
}

func (e external) serve(r *http.Request, info *apirequest.RequestInfo) (runtime.Object, error) {
	switch {
	case r.Method != http.MethodGet || info.Verb == "watch":
		return nil, apierrors.NewMethodNotSupported(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Verb)
	case info.Namespace == "" || info.Resource == "" || len(info.Parts) != 1:
		return nil, notFound("the server could not find the requested resource")
	}
	series, err := selector(r.URL.Query().Get("labelSelector"), "labelSelector")
	if err != nil {
		return nil, err
	}
	candidates := make([]candidate[ExternalValue], len(e.sources))
	for i, s := range e.sources {
		candidates[i] = candidate[ExternalValue]{s.Source, func(ctx context.Context) ([]ExternalValue, error) {
			return s.ExternalValues(ctx, info.Namespace, info.Resource, series)
		}}
	}
	values, err := firstAnswer(r.Context(), candidates, notFound("the server could not find the metric %s for provided labels", info.Resource))
	if err != nil {
		return nil, err
	}
	return listExternal(info.Resource, values), nil
}

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

// structured converts a selector for a list kind. It returns nil for a selector that matches everything.
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

// The messages are the same as in custom-metrics-apiserver, because users search for them and alerts match them.

func notFound(format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: fmt.Sprintf(format, args...),
	}}
}

func metricNotFound(r schema.GroupResource, metric string) error {
	return notFound("the server could not find the metric %s for %s", metric, r)
}

// objectNotMeasured returns the 404 for an object that has no value for an existing metric.
func objectNotMeasured(q CustomQuery) error {
	if q.Series.Empty() {
		return notFound("the server could not find the metric %s for %s %s", q.Name, q.Resource, q.Object)
	}
	return notFound("the server could not find the metric %s for %s %s with selector %s", q.Name, q.Resource, q.Object, q.Series)
}
