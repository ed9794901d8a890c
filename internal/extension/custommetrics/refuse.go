package custommetrics

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The texts are those of the custom-metrics-apiserver library: people search for them, and alerts look for them.

func notFound(format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: fmt.Sprintf(format, args...),
	}}
}

func metricNotFound(r schema.GroupResource, metric string) error {
	return notFound("the server could not find the metric %s for %s", metric, r)
}

// objectNotMeasured: the metric exists, and this object has no value of it.
func objectNotMeasured(q CustomQuery) error {
	if q.Series.Empty() {
		return notFound("the server could not find the metric %s for %s %s", q.Name, q.Resource, q.Object)
	}
	return notFound("the server could not find the metric %s for %s %s with selector %s", q.Name, q.Resource, q.Object, q.Series)
}
