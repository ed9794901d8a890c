package custommetrics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"portico.dev/internal/extserver/prometheus"
	"portico.dev/pkg/extension"
)

const (
	// concurrent limits concurrent lookups of series. Requests use the same server.
	concurrent = 4
	// A failed lookup is retried after firstRetry, with exponential backoff up to maxRetry.
	firstRetry = 2 * time.Second
	maxRetry   = 5 * time.Second
	// maxMetrics limits the metrics in discovery, because a rule that matches everything would make it unusable.
	maxMetrics = 20_000
)

// PrometheusQuerier queries a Prometheus server.
type PrometheusQuerier interface {
	// Query evaluates promql at a point in time, which is now if at is zero.
	Query(ctx context.Context, promql string, at time.Time) ([]prometheus.Sample, []string, error)
	// Series returns the label sets of the series that match has selected since start.
	Series(ctx context.Context, match []string, start time.Time) ([]map[string]string, error)
}

// PrometheusConfig configures a PrometheusProvider.
type PrometheusConfig struct {
	// Name identifies the provider in warnings and metrics. Default: prometheus-rules.
	Name string
	// File is the name of the rule file in messages.
	File string
	// Client, Rules and Objects are required.
	Client  PrometheusQuerier
	Rules   *Rules
	Objects *Objects
	// Interval is the interval at which series are listed. Default: one minute.
	Interval time.Duration
	// MaxAge is the maximum age of the last sample of a series that is listed as a metric. Default: ten minutes, or Interval
	// if that is longer.
	MaxAge time.Duration
	Logger *zap.Logger
}

// PrometheusProvider serves the metrics of one rule file. It is safe for concurrent use.
type PrometheusProvider struct {
	config  PrometheusConfig
	trouble atomic.Pointer[error]

	mu     sync.Mutex // guards the fields below
	series [2][]shapes
	now    *snapshot
}

// shapes are the distinct names and label sets of the series of one rule, which determine its metrics.
type shapes []shape

type shape struct {
	series string
	labels []string // sorted
}

// NewPrometheusProvider returns a provider. It has no metrics until Run has listed the series.
func NewPrometheusProvider(c PrometheusConfig) (*PrometheusProvider, error) {
	if c.Client == nil || c.Rules == nil || c.Objects == nil {
		return nil, errors.New("metrics from prometheus: a client, rules and objects are required")
	}
	c.Name = cmp.Or(c.Name, "prometheus-rules")
	if c.Interval <= 0 {
		c.Interval = time.Minute
	}
	if c.MaxAge <= 0 {
		c.MaxAge = max(10*time.Minute, c.Interval)
	}
	c.Logger = cmp.Or(c.Logger, zap.NewNop())
	p := &PrometheusProvider{config: c}
	p.series = [2][]shapes{make([]shapes, len(c.Rules.Rules)), make([]shapes, len(c.Rules.ExternalRules))}
	unread := errors.New("its series have not been looked up yet")
	p.trouble.Store(&unread)
	return p, nil
}

// Custom returns the provider as a source for custommetrics.Custom.
func (p *PrometheusProvider) Custom() CustomSource {
	return CustomSource{Source: p.Source(), CustomProvider: p}
}

// External returns the provider as a source for custommetrics.External.
func (p *PrometheusProvider) External() ExternalSource {
	return ExternalSource{Source: p.Source(), ExternalProvider: p}
}

// Source returns a source that reports errors of the series lookup.
func (p *PrometheusProvider) Source() extension.Source {
	return extension.Source{Name: p.config.Name, LastError: func() error {
		if err := p.trouble.Load(); err != nil {
			return *err
		}
		return nil
	}}
}

// Run lists series periodically until ctx ends.
func (p *PrometheusProvider) Run(ctx context.Context) error {
	retry := firstRetry
	for {
		wait := p.config.Interval
		err := p.refresh(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			p.config.Logger.Warn("failed to list series", zap.Error(err))
			p.trouble.Store(&err)
			wait, retry = nextRetry(retry, p.config.Interval)
		default:
			p.trouble.Store(nil)
			retry = firstRetry
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// nextRetry returns the pause before the next attempt, less a jitter, and the one after it. Neither is longer than interval.
func nextRetry(retry, interval time.Duration) (wait, next time.Duration) {
	limit := min(maxRetry, interval)
	wait = min(retry, limit)
	return wait - rand.N(wait/5+1), min(2*wait, limit)
}

// refresh lists the series of every rule. Rules with the same selector share a lookup.
func (p *PrometheusProvider) refresh(ctx context.Context) error {
	type place struct{ kind, index int }
	bySelector := map[string][]place{}
	for kind, list := range [2][]*Rule{p.config.Rules.Rules, p.config.Rules.ExternalRules} {
		for i, r := range list {
			bySelector[r.SeriesQuery] = append(bySelector[r.SeriesQuery], place{kind, i})
		}
	}
	start := time.Now().Add(-p.config.MaxAge)
	var failed error
	group := errgroup.Group{}
	group.SetLimit(concurrent)
	for selector, places := range bySelector {
		group.Go(func() error {
			found, err := p.config.Client.Series(ctx, []string{selector}, start)
			p.mu.Lock()
			defer p.mu.Unlock()
			if err != nil {
				line := p.rule(places[0].kind, places[0].index).Line
				failed = errors.Join(failed, fmt.Errorf("%s:%d: seriesQuery: %w", p.config.File, line, err))
				return nil // the results of other rules remain valid
			}
			reduced := reduce(found)
			for _, at := range places {
				p.series[at.kind][at.index] = reduced
			}
			return nil
		})
	}
	_ = group.Wait() // failed contains all errors
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = nil // rebuilt on the next use
	return failed
}

func (p *PrometheusProvider) rule(kind, index int) *Rule {
	if kind == 0 {
		return p.config.Rules.Rules[index]
	}
	return p.config.Rules.ExternalRules[index]
}

// reduce returns one shape for all series with the same name and labels. Ten thousand pods have one shape.
func reduce(found []map[string]string) shapes {
	seen := map[string]bool{}
	var out shapes
	for _, labels := range found {
		s := shape{series: labels["__name__"]}
		for name := range labels {
			if name != "__name__" {
				s.labels = append(s.labels, name)
			}
		}
		slices.Sort(s.labels)
		key := s.series + "\x00" + strings.Join(s.labels, "\x00")
		if s.series != "" && !seen[key] {
			seen[key] = true
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b shape) int {
		if c := strings.Compare(a.series, b.series); c != 0 {
			return c
		}
		return slices.Compare(a.labels, b.labels)
	})
	return out
}

// snapshot contains the metrics for one set of series and one catalogue.
type snapshot struct {
	catalogue *Catalogue
	custom    map[Metric]origin
	external  map[string]origin

	customList   []Metric
	externalList []string
}

// origin is the rule and the series that provide a metric.
type origin struct {
	rule   *Rule
	series string
	labels Labels
	// resource is the resource that a custom metric describes.
	resource Resource
}

// current returns the snapshot, after rebuilding it if the series or the catalogue have changed.
func (p *PrometheusProvider) current() *snapshot {
	catalogue := p.config.Objects.Catalogue()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now == nil || p.now.catalogue != catalogue {
		p.now = p.build(catalogue)
	}
	return p.now
}

// build names every series. If several rules define the same metric, the first rule wins; within a rule, the alphabetically
// first series wins, so that the result does not change at a restart.
func (p *PrometheusProvider) build(catalogue *Catalogue) *snapshot {
	s := &snapshot{catalogue: catalogue, custom: map[Metric]origin{}, external: map[string]origin{}}
	for i, rule := range p.config.Rules.Rules {
		labels := rule.Labels(catalogue)
		for _, unknown := range labels.Unknown {
			p.config.Logger.Debug("rule refers to an unknown resource",
				zap.String("file", p.config.File), zap.Int("line", rule.Line), zap.Stringer("resource", unknown))
		}
		for _, shape := range p.series[0][i] {
			s.addCustom(rule, labels, shape)
		}
	}
	for i, rule := range p.config.Rules.ExternalRules {
		labels := rule.Labels(catalogue)
		for _, shape := range p.series[1][i] {
			if name, ok := rule.MetricName(shape.series); ok && len(s.external) < maxMetrics {
				s.addExternal(name, origin{rule: rule, series: shape.series, labels: labels})
			}
		}
	}
	slices.SortFunc(s.customList, func(a, b Metric) int {
		return cmp.Or(cmp.Compare(a.Resource.String(), b.Resource.String()), cmp.Compare(a.Name, b.Name))
	})
	slices.Sort(s.externalList)
	return s
}

func (s *snapshot) addCustom(rule *Rule, labels Labels, found shape) {
	name, ok := rule.MetricName(found.series)
	if !ok {
		return
	}
	namespaceLabel, has := labels.NamespaceLabel()
	inNamespaces := has && slices.Contains(found.labels, namespaceLabel)
	for _, resource := range labels.Described(found.labels) {
		metric := Metric{Resource: resource.GroupResource(), Name: name, Namespaced: resource.Namespaced && inNamespaces}
		if _, taken := s.custom[metric]; taken || len(s.custom) >= maxMetrics {
			continue
		}
		s.custom[metric] = origin{rule: rule, series: found.series, labels: labels, resource: resource}
		s.customList = append(s.customList, metric)
	}
}

func (s *snapshot) addExternal(name string, o origin) {
	if _, taken := s.external[name]; !taken {
		s.external[name] = o
		s.externalList = append(s.externalList, name)
	}
}

// CustomMetrics returns the metrics that the rules derive from the series.
func (p *PrometheusProvider) CustomMetrics() []Metric { return p.current().customList }

// ExternalMetrics returns the metrics that the external rules derive from the series.
func (p *PrometheusProvider) ExternalMetrics() []string { return p.current().externalList }

// CustomValues queries the metric of one object or of selected objects.
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
	target.Label, _ = from.labels.Lookup(q.Resource)
	if q.Namespaced {
		target.NamespaceLabel, _ = from.labels.NamespaceLabel()
		target.Namespace = q.Namespace
	}
	samples, err := p.query(ctx, from, target)
	if err != nil {
		return nil, err
	}
	return p.match(ctx, from, target, samples), nil
}

// match assigns samples to objects. It drops samples of other objects, because a template that ignores the matchers must not
// disclose the values of another namespace.
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

// ExternalValues queries all series of the metric that selector selects.
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
	samples, err := p.query(ctx, from, target)
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

func (p *PrometheusProvider) query(ctx context.Context, from origin, target Target) ([]prometheus.Sample, error) {
	query, err := from.rule.Query(target)
	var selector *SelectorError
	switch {
	case errors.Is(err, ErrName):
		return nil, nil // no object can have this name
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

// blame adds the file and line of the rule to an error of its query.
func (p *PrometheusProvider) blame(from origin, err error) error {
	return fmt.Errorf("%s:%d: metricsQuery: %w", p.config.File, from.rule.Line, err)
}

// quantity converts a sample to a Quantity in thousandths. NaN, such as a quotient of two zeros, yields no value: an
// autoscaler that read zero would scale down.
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
