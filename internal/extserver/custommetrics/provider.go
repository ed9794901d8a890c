package custommetrics

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/pkg/extension"
)

// ErrUnknown is returned by a provider that does not have a metric. The next provider is queried then.
var ErrUnknown = errors.New("unknown metric")

// Metric identifies a custom metric of a resource.
type Metric struct {
	// Resource is the plural name of the described resource.
	Resource schema.GroupResource
	// Namespaced reports whether the described objects are in namespaces. It is false for metrics of namespaces.
	Namespaced bool
	Name       string
}

// CustomProvider provides custom metrics.
type CustomProvider interface {
	// CustomMetrics returns the current metrics. It must not block, because discovery waits for it.
	CustomMetrics() []Metric
	// CustomValues returns the values for the objects in q. It returns ErrUnknown if it does not have the metric, and no
	// values if it has none for these objects. An error that carries a Status is returned to the client unchanged.
	CustomValues(ctx context.Context, q CustomQuery) ([]CustomValue, error)
}

// CustomQuery is a query for a metric of one or several objects.
type CustomQuery struct {
	Metric
	// Namespace is the namespace of the objects, empty for cluster-scoped ones.
	Namespace string
	// Object is the name of one object. If it is empty, Objects selects the objects.
	Object  string
	Objects labels.Selector
	// Series selects series of the metric, such as verb=GET. Both selectors are never nil.
	Series labels.Selector
}

// CustomValue is the value of a metric for one object.
type CustomValue struct {
	Object    Object
	Value     resource.Quantity
	Timestamp time.Time
	Window    time.Duration // zero for an instantaneous value
}

// Object identifies the object that a value describes.
type Object struct{ APIVersion, Kind, Namespace, Name string }

// ExternalProvider provides metrics that are not related to API objects.
type ExternalProvider interface {
	// ExternalMetrics returns the current metrics. It must not block.
	ExternalMetrics() []string
	// ExternalValues returns the value of each series of the metric that selector selects, or ErrUnknown if it does not have
	// the metric. The caller has access to namespace, so the result must not contain series that are hidden from it.
	ExternalValues(ctx context.Context, namespace, metric string, selector labels.Selector) ([]ExternalValue, error)
}

// ExternalValue is the value of one series.
type ExternalValue struct {
	Labels    map[string]string
	Value     resource.Quantity
	Timestamp time.Time
	Window    time.Duration
}

// CustomSource is a provider with its name and its error state.
type CustomSource struct {
	extension.Source
	CustomProvider
}

// ExternalSource is a provider of external metrics with its name and its error state.
type ExternalSource struct {
	extension.Source
	ExternalProvider
}

// candidate is a source for one query.
type candidate[V any] struct {
	extension.Source
	ask func(ctx context.Context) ([]V, error)
}

// firstAnswer returns the result of the first source that has the metric. If a source that has the metric fails, firstAnswer
// adds a warning and tries the next one; if all of them fail, it returns the first error. It returns unknown if no source has
// the metric. However, if a source that returned ErrUnknown also reports an error, it may be missing the metric, and
// firstAnswer returns a 503, because clients may treat a 404 as final.
func firstAnswer[V any](ctx context.Context, sources []candidate[V], unknown error) ([]V, error) {
	var failure, trouble error
	for _, s := range sources {
		values, err := s.ask(ctx)
		switch {
		case err == nil:
			return values, nil
		case errors.Is(err, ErrUnknown):
			if err := errorOf(s.Source); err != nil {
				trouble = errors.Join(trouble, err)
				extension.Warn(ctx, err.Error())
			}
		case blamesClient(err):
			return nil, err
		default:
			extension.Warn(ctx, fmt.Sprintf("%s: %v", s.Name, err))
			if failure == nil {
				failure = fmt.Errorf("%s: %w", s.Name, err)
			}
		}
	}
	switch {
	case failure != nil:
		return nil, failure
	case trouble != nil:
		return nil, apierrors.NewServiceUnavailable(unknown.Error() + "; not every source can say what it has: " + trouble.Error())
	}
	return nil, unknown
}

func errorOf(s extension.Source) error {
	if s.LastError == nil {
		return nil
	}
	if err := s.LastError(); err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	return nil
}

// blamesClient reports whether err is caused by the request, and would therefore occur with every source.
func blamesClient(err error) bool {
	return apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err)
}
