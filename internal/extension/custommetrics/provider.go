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

// ErrUnknown is what a provider returns for a metric that is not its own: the next one is asked.
var ErrUnknown = errors.New("unknown metric")

// Metric names a custom metric: what is measured of which kind of object.
type Metric struct {
	// Resource is what it describes, in the plural.
	Resource schema.GroupResource
	// Namespaced is whether the objects lie in namespaces. A metric of namespaces themselves is not namespaced.
	Namespaced bool
	Name       string
}

// CustomProvider knows custom metrics.
type CustomProvider interface {
	// CustomMetrics lists the metrics that are known now. It must answer at once: discovery waits for it.
	CustomMetrics() []Metric
	// CustomValues measures the objects that q asks for. It returns ErrUnknown when the metric is not its own, and no
	// values when it has none for those objects. An error that carries a Status reaches the client as it is.
	CustomValues(ctx context.Context, q CustomQuery) ([]CustomValue, error)
}

// CustomQuery asks for a metric of one object or of several.
type CustomQuery struct {
	Metric
	// Namespace is where the objects are, empty for those outside of namespaces.
	Namespace string
	// Object is the one that is asked for. Empty: those that Objects selects.
	Object  string
	Objects labels.Selector
	// Series narrows what is measured, such as verb=GET. Neither selector is ever nil.
	Series labels.Selector
}

// CustomValue is what was measured of one object.
type CustomValue struct {
	Object    Object
	Value     resource.Quantity
	Timestamp time.Time
	Window    time.Duration // zero: a value of the moment
}

// Object is what a value describes.
type Object struct{ APIVersion, Kind, Namespace, Name string }

// ExternalProvider knows metrics of things outside of the API.
type ExternalProvider interface {
	// ExternalMetrics lists the metrics that are known now. It must answer at once.
	ExternalMetrics() []string
	// ExternalValues gives each series of the metric that selector selects, or ErrUnknown when it is not its own. The
	// namespace is the caller's: what it may not see must be left out.
	ExternalValues(ctx context.Context, namespace, metric string, selector labels.Selector) ([]ExternalValue, error)
}

// ExternalValue is the value of one series.
type ExternalValue struct {
	Labels    map[string]string
	Value     resource.Quantity
	Timestamp time.Time
	Window    time.Duration
}

// CustomSource is a provider with the name under which it is known and what may be wrong with it.
type CustomSource struct {
	extension.Source
	CustomProvider
}

// ExternalSource is the same for external metrics.
type ExternalSource struct {
	extension.Source
	ExternalProvider
}

// candidate is one of the sources of a group, for one question.
type candidate[V any] struct {
	extension.Source
	ask func(ctx context.Context) ([]V, error)
}

// firstAnswer gives the answer of the first source that knows the metric. A source that knows it and fails is passed over
// for the next one that knows it, with a warning; when there is none, the failure is the answer. unknown is the answer
// when nobody knows the metric, unless somebody is in trouble, who might: then it is 503, because a client may take a
// 404 for final.
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

// blamesClient: what is wrong with the request is wrong for every source.
func blamesClient(err error) bool {
	return apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err)
}
