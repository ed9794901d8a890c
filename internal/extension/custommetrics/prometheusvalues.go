package custommetrics

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"portico.dev/internal/extension"
	"portico.dev/internal/extension/prometheus"
)

// CustomValues asks for the metric of one object or of those that a selector selects.
func (p *PrometheusProvider) CustomValues(ctx context.Context, q CustomQuery) ([]CustomValue, error) {
	s := p.current()
	if r, ok := s.catalogue.Lookup(q.Resource.Group, q.Resource.Resource); ok {
		q.Resource = r.GroupResource()
	}
	from, ok := s.custom[q.Metric]
	if !ok {
		return nil, ErrUnknown
	}
	names := []string{q.Object}
	if q.Object == "" {
		var err error
		if names, err = p.config.Objects.Names(ctx, from.resource, q.Namespace, q.Objects); err != nil || len(names) == 0 {
			return nil, err
		}
	}
	target := Target{Series: from.series, Names: names, Selector: q.Series}
	target.Label, _ = from.labels.Of(q.Resource)
	if q.Namespaced {
		target.NamespaceLabel, _ = from.labels.NamespaceLabel()
		target.Namespace = q.Namespace
	}
	samples, err := p.ask(ctx, from, target)
	if err != nil {
		return nil, err
	}
	return p.match(ctx, from, target, samples), nil
}

// match gives each object its sample. What a query returns beyond the objects that were asked for is left out: a
// template that ignores the matchers must not show one namespace the other's numbers.
func (p *PrometheusProvider) match(ctx context.Context, from origin, target Target, samples []prometheus.Sample) []CustomValue {
	byName := make(map[string]prometheus.Sample, len(samples))
	for _, sample := range samples {
		if namespace, told := sample.Metric[target.NamespaceLabel]; told && namespace != target.Namespace {
			continue
		}
		name := sample.Metric[target.Label]
		if _, twice := byName[name]; twice {
			extension.Warn(ctx, fmt.Sprintf("%s:%d: metricsQuery: more than one value for %s %q, the first is taken; group by <<.GroupBy>>",
				p.config.File, from.rule.Line, from.resource.GroupResource(), name))
			continue
		}
		byName[name] = sample
	}
	var out []CustomValue
	for _, name := range target.Names {
		sample, ok := byName[name]
		if !ok {
			continue
		}
		if value, ok := quantity(sample.Value); ok {
			out = append(out, CustomValue{
				Object: Object{APIVersion: from.resource.APIVersion(), Kind: from.resource.Kind, Namespace: target.Namespace, Name: name},
				Value:  value, Timestamp: sample.Timestamp, Window: from.rule.Window,
			})
		}
	}
	return out
}

// ExternalValues asks for every series of the metric that selector selects.
func (p *PrometheusProvider) ExternalValues(ctx context.Context, namespace, metric string, selector labels.Selector) ([]ExternalValue, error) {
	from, ok := p.current().external[metric]
	if !ok {
		return nil, ErrUnknown
	}
	target := Target{Series: from.series, Selector: selector}
	if from.rule.Namespaced {
		target.Namespace = namespace
		if target.NamespaceLabel, ok = from.labels.NamespaceLabel(); !ok {
			target.NamespaceLabel = "namespace"
		}
	}
	samples, err := p.ask(ctx, from, target)
	if err != nil {
		return nil, err
	}
	var out []ExternalValue
	for _, sample := range samples {
		if of, told := sample.Metric[target.NamespaceLabel]; told && of != namespace {
			continue
		}
		if value, ok := quantity(sample.Value); ok {
			out = append(out, ExternalValue{Labels: sample.Metric, Value: value, Timestamp: sample.Timestamp, Window: from.rule.Window})
		}
	}
	return out, nil
}

func (p *PrometheusProvider) ask(ctx context.Context, from origin, target Target) ([]prometheus.Sample, error) {
	query, err := from.rule.Query(target)
	var selector *SelectorError
	switch {
	case errors.Is(err, ErrName):
		return nil, nil // no object has such a name, so none was measured
	case errors.As(err, &selector):
		return nil, apierrors.NewBadRequest(err.Error())
	case err != nil:
		return nil, p.blame(from, err)
	}
	samples, warnings, err := p.config.Client.Query(ctx, query, time.Time{})
	for _, w := range warnings {
		extension.Warn(ctx, p.config.Name+": "+w)
	}
	var refused *prometheus.Error
	switch {
	case errors.As(err, &refused) && refused.Question():
		return nil, p.blame(from, err)
	case err != nil:
		return nil, apierrors.NewServiceUnavailable(err.Error())
	}
	return samples, nil
}

// blame says which rule made the query that went wrong.
func (p *PrometheusProvider) blame(from origin, err error) error {
	return fmt.Errorf("%s:%d: metricsQuery: %w", p.config.File, from.rule.Line, err)
}

// quantity is a sample as the API carries it, in thousandths. What is no number (a quotient of two zeros) is no value:
// an autoscaler that read a zero there would scale down.
func quantity(v float64) (resource.Quantity, bool) {
	const most = math.MaxInt64 / 1000
	switch {
	case math.IsNaN(v) || math.Abs(v) >= math.MaxInt64:
		return resource.Quantity{}, false
	case math.Abs(v) >= most:
		return *resource.NewQuantity(int64(v), resource.DecimalSI), true
	}
	return *resource.NewMilliQuantity(int64(math.Round(v*1000)), resource.DecimalSI), true
}
