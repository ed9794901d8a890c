// Package prometheus is a provider of custom and external metrics made of rules and a Prometheus server.
//
// Run finds out again and again which series there are, because discovery must list metrics without asking anybody.
// Values are asked for when a request asks. A rule whose series cannot be read keeps those that it had.
package custommetrics

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"portico.dev/internal/extension"
	"portico.dev/internal/extension/prometheus"
)

const (
	// concurrent is how many rules are looked up at a time: requests share the server with this.
	concurrent = 4
	firstRetry = 2 * time.Second
	// maxMetrics bounds what discovery lists; a rule that matches everything would make it unreadable.
	maxMetrics = 20_000
)

// PrometheusQuerier asks a Prometheus server.
type PrometheusQuerier interface {
	// Query evaluates promql at a moment, now when at is zero.
	Query(ctx context.Context, promql string, at time.Time) ([]prometheus.Sample, []string, error)
	// Series lists the label sets that a selector finds since start.
	Series(ctx context.Context, match []string, start time.Time) ([]map[string]string, error)
}

// PrometheusConfig makes a Provider.
type PrometheusConfig struct {
	// Name is what warnings and metrics call it. Default: prometheus-rules.
	Name string
	// File is where the rules come from, for messages.
	File string
	// Client, Rules and Objects are required.
	Client  PrometheusQuerier
	Rules   *Rules
	Objects *Objects
	// Interval is how often series are looked up. Default one minute.
	Interval time.Duration
	// MaxAge is how long ago a series may have had its last sample and still be a metric. Default ten minutes.
	MaxAge time.Duration
	Logger *zap.Logger
}

// PrometheusProvider serves the metrics of one rule file. It is safe for concurrent use.
type PrometheusProvider struct {
	config  PrometheusConfig
	trouble atomic.Pointer[error]

	mu     sync.Mutex // guards what follows
	series [2][]shapes
	now    *snapshot
}

// shapes are the series of one rule without their values: what there is to know of them for naming.
type shapes []shape

type shape struct {
	series string
	labels []string // sorted
}

// NewPrometheusProvider makes a provider that knows no metrics until Run has looked.
func NewPrometheusProvider(c PrometheusConfig) (*PrometheusProvider, error) {
	if c.Client == nil || c.Rules == nil || c.Objects == nil {
		return nil, errors.New("metrics from prometheus: a client, rules and objects are required")
	}
	if c.Name == "" {
		c.Name = "prometheus-rules"
	}
	if c.Interval <= 0 {
		c.Interval = time.Minute
	}
	if c.MaxAge <= 0 {
		c.MaxAge = max(10*time.Minute, c.Interval)
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	p := &PrometheusProvider{config: c}
	p.series = [2][]shapes{make([]shapes, len(c.Rules.Rules)), make([]shapes, len(c.Rules.ExternalRules))}
	unread := errors.New("its series have not been looked up yet")
	p.trouble.Store(&unread)
	return p, nil
}

// Custom is the provider for custommetrics.Custom.
func (p *PrometheusProvider) Custom() CustomSource {
	return CustomSource{Source: p.Source(), CustomProvider: p}
}

// External is the provider for custommetrics.External.
func (p *PrometheusProvider) External() ExternalSource {
	return ExternalSource{Source: p.Source(), ExternalProvider: p}
}

// Source tells how the lookup of series fares.
func (p *PrometheusProvider) Source() extension.Source {
	return extension.Source{Name: p.config.Name, Trouble: func() error {
		if err := p.trouble.Load(); err != nil {
			return *err
		}
		return nil
	}}
}

// Run looks up series until ctx ends.
func (p *PrometheusProvider) Run(ctx context.Context) error {
	retry := firstRetry
	for {
		wait := p.config.Interval
		err := p.refresh(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			p.config.Logger.Warn("look up series", zap.Error(err))
			p.trouble.Store(&err)
			wait, retry = min(retry, p.config.Interval), min(2*retry, p.config.Interval)
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

// refresh looks up the series of every rule. Rules with the same selector share one lookup.
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
				return nil // what the other rules find counts all the same
			}
			reduced := reduce(found)
			for _, at := range places {
				p.series[at.kind][at.index] = reduced
			}
			return nil
		})
	}
	_ = group.Wait() // every failure is in failed
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = nil // to be made of what is known now
	return failed
}

func (p *PrometheusProvider) rule(kind, index int) *Rule {
	if kind == 0 {
		return p.config.Rules.Rules[index]
	}
	return p.config.Rules.ExternalRules[index]
}

// reduce keeps one of all series that have the same name and labels: ten thousand pods are one shape.
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
