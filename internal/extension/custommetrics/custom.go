package custommetrics

import (
	"context"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/extension"
)

// CustomGroup is the group of metrics that describe objects.
const CustomGroup = "custom.metrics.k8s.io"

// everyObject is what stands for a name in the path when objects are selected by their labels.
const everyObject = "*"

var namespaces = schema.GroupResource{Resource: "namespaces"}

// Custom hosts custom.metrics.k8s.io in both its versions. The order of sources decides who answers for a metric that
// several of them know.
func Custom(sources ...CustomSource) []extension.Resource {
	c := custom{sources}
	return []extension.Resource{c.version("v1beta2", listV1beta2), c.version("v1beta1", listV1beta1)}
}

type custom struct{ sources []CustomSource }

// answerCustom writes values in one version's kind.
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

// resources is discovery: one entry for each pair of resource and metric, those of all sources.
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

// sorted puts entries in order and drops those that an earlier source has already.
func sorted(resources []metav1.APIResource) []metav1.APIResource {
	slices.SortStableFunc(resources, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(resources, func(a, b metav1.APIResource) bool { return a.Name == b.Name })
}

func (c custom) serve(r *http.Request, info *apirequest.RequestInfo, answer answerCustom) (runtime.Object, error) {
	q, err := customQuery(r, info)
	if err != nil {
		return nil, err
	}
	contestants := make([]contestant[CustomValue], len(c.sources))
	for i, s := range c.sources {
		contestants[i] = contestant[CustomValue]{s.Source, func(ctx context.Context) ([]CustomValue, error) { return s.CustomValues(ctx, q) }}
	}
	values, err := first(r.Context(), contestants, metricNotFound(q.Resource, q.Name))
	if err != nil {
		return nil, err
	}
	if q.Object != "" && len(values) == 0 {
		return nil, objectNotMeasured(q)
	}
	return answer(q, values)
}

// customQuery reads what a request asks for.
func customQuery(r *http.Request, info *apirequest.RequestInfo) (CustomQuery, error) {
	if r.Method != http.MethodGet {
		return CustomQuery{}, apierrors.NewMethodNotSupported(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Verb)
	}
	q := CustomQuery{Namespace: info.Namespace, Object: info.Name}
	q.Resource, q.Name, q.Namespaced = schema.ParseGroupResource(info.Resource), info.Subresource, info.Namespace != ""
	switch {
	case info.Resource == "metrics" && info.Namespace != "" && info.Subresource == "":
		// What describes a namespace has a path of its own: /namespaces/NS/METRIC would be a list of METRICs in NS.
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
