package custommetrics

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	externalv1beta1 "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"

	"portico.dev/internal/extension"
)

// ExternalGroup is the group of metrics that describe nothing in the API.
const ExternalGroup = "external.metrics.k8s.io"

// External hosts external.metrics.k8s.io. The order of sources decides who answers for a metric that several know.
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
			// The verb is what every adapter says, although requests are lists.
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
	contestants := make([]contestant[ExternalValue], len(e.sources))
	for i, s := range e.sources {
		contestants[i] = contestant[ExternalValue]{s.Source, func(ctx context.Context) ([]ExternalValue, error) {
			return s.ExternalValues(ctx, info.Namespace, info.Resource, series)
		}}
	}
	values, err := first(r.Context(), contestants, notFound("the server could not find the metric %s for provided labels", info.Resource))
	if err != nil {
		return nil, err
	}
	return listExternal(info.Resource, values), nil
}
