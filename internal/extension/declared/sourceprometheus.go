package declared

import (
	"context"
	"math"
	"strings"
	"time"

	"portico.dev/internal/extension/prometheus"
)

// Querier asks a Prometheus server; *promsource.Client is one.
type Querier interface {
	// Query evaluates promql at one moment, now when at is zero.
	Query(ctx context.Context, promql string, at time.Time) (samples []prometheus.Sample, warnings []string, err error)
}

// Prometheus evaluates a query: one item for each sample, {metric: {<label>: <value>}, value: <number>, timestamp: <time>}.
type Prometheus struct {
	Server prometheus.Config
	Query  string

	client lazy[Querier]
}

// Fetch evaluates the query now. A value that is no number (NaN, an infinity) is left out: JSON has no word for it.
func (p *Prometheus) Fetch(ctx context.Context) (any, error) {
	client, err := p.client.get(func() (Querier, error) { return prometheus.New(p.Server) })
	if err != nil {
		return nil, err
	}
	samples, _, err := client.Query(ctx, p.Query, time.Time{})
	if err != nil {
		return nil, err
	}
	items := make([]any, 0, len(samples))
	for _, s := range samples {
		metric := make(map[string]any, len(s.Metric))
		for label, value := range s.Metric {
			// The strings are parts of the answer's buffer; what is kept must not keep the whole.
			metric[strings.Clone(label)] = strings.Clone(value)
		}
		item := map[string]any{"metric": metric, "timestamp": s.Timestamp.UTC().Format(time.RFC3339Nano)}
		if !math.IsNaN(s.Value) && !math.IsInf(s.Value, 0) {
			item["value"] = s.Value
		}
		items = append(items, item)
	}
	return items, nil
}

// Close lets go of idle connections.
func (p *Prometheus) Close() {
	if client, ok := p.client.made(); ok {
		if c, ok := client.(interface{ Close() }); ok {
			c.Close()
		}
	}
}
