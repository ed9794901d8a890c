package console

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics of a front door or gateway that the page shows: docs/reference/metrics.md.
const (
	metricAnswers  = "portico_backend_answers_total"
	metricFailures = "portico_backend_failed_attempts_total"
	metricDuration = "portico_backend_header_duration_seconds"
	metricInFlight = "portico_backend_requests_in_flight"
	metricEjected  = "portico_backend_ejected_endpoints"
	metricEjection = "portico_backend_ejections_total"
)

var shownMetrics = []string{metricAnswers, metricFailures, metricDuration, metricInFlight, metricEjected, metricEjection}

// maxLine bounds a line of metrics.
const maxLine = 64 << 10

// counts holds the counters of one pool in one replica since the start of the replica.
type counts struct {
	answers, failures, inFlight, ejected, ejections float64
	// count and buckets are the histogram of the time to the response headers. The buckets have ascending upper
	// bounds and cumulative counts.
	count   float64
	buckets []bucket
}

type bucket struct{ bound, count float64 }

// pool identifies connections of a front door or gateway to a Service: namespace/name:port, and how its certificate is
// verified (transport.Trust). APIServices with the same Service and different CA bundles have separate pools. trust is
// empty if an older server does not report it.
type pool struct{ service, trust string }

// matches reports whether p selects other. The zero value selects all pools, and a pool without trust matches all pools
// of its Service.
func (p pool) matches(other pool) bool {
	return p == pool{} || p.service == other.service && (p.trust == other.trust || other.trust == "")
}

// readMetrics parses the metrics that the page shows, by pool. It drops all other lines before parsing, because a
// front door with a thousand backends serves megabytes.
func readMetrics(body io.Reader) (map[pool]*counts, error) {
	var kept bytes.Buffer
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 4<<10), maxLine)
	for lines.Scan() {
		line := lines.Text()
		name, isType := strings.CutPrefix(line, "# TYPE ")
		if slices.ContainsFunc(shownMetrics, func(m string) bool { return strings.HasPrefix(name, m) }) && (isType || name[0] != '#') {
			kept.WriteString(line)
			kept.WriteByte('\n')
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&kept)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	out := map[pool]*counts{}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			labels := labelsOf(m)
			p := pool{labels["backend"], labels["trust"]}
			c := out[p]
			if c == nil {
				c = &counts{}
				out[p] = c
			}
			c.add(name, labels, m)
		}
	}
	return out, nil
}

func labelsOf(m *dto.Metric) map[string]string {
	out := map[string]string{}
	for _, l := range m.GetLabel() {
		out[l.GetName()] = l.GetValue()
	}
	return out
}

func (c *counts) add(name string, labels map[string]string, m *dto.Metric) {
	switch name {
	case metricAnswers:
		c.answers += m.GetCounter().GetValue()
		if labels["class"] == "5xx" {
			c.failures += m.GetCounter().GetValue()
		}
	case metricFailures:
		c.answers += m.GetCounter().GetValue()
		c.failures += m.GetCounter().GetValue()
	case metricInFlight:
		c.inFlight = m.GetGauge().GetValue()
	case metricEjected:
		c.ejected = m.GetGauge().GetValue()
	case metricEjection:
		c.ejections = m.GetCounter().GetValue()
	case metricDuration:
		c.count = float64(m.GetHistogram().GetSampleCount())
		for _, b := range m.GetHistogram().GetBucket() {
			c.buckets = append(c.buckets, bucket{b.GetUpperBound(), float64(b.GetCumulativeCount())})
		}
	}
}

// between is the change between two readings.
type between struct{ rate, failures, median, slowest float64 }

// since compares c with an earlier reading. If a counter decreased, the process has restarted and all results are
// NaN.
func (c *counts) since(earlier *counts, elapsed time.Duration) between {
	b := between{math.NaN(), math.NaN(), math.NaN(), math.NaN()}
	if earlier == nil || elapsed <= 0 || c.answers < earlier.answers || c.count < earlier.count {
		return b
	}
	b.rate, b.failures = (c.answers-earlier.answers)/elapsed.Seconds(), max(0, c.failures-earlier.failures)/elapsed.Seconds()
	b.median, b.slowest = 1000*c.quantile(earlier, 0.5), 1000*c.quantile(earlier, 0.95)
	return b
}

// quantile estimates a quantile of the durations since an earlier reading, in seconds, with the algorithm of
// Prometheus.
func (c *counts) quantile(earlier *counts, share float64) float64 {
	total := c.count - earlier.count
	if total <= 0 || len(c.buckets) != len(earlier.buckets) {
		return math.NaN()
	}
	var low, before float64
	for i, b := range c.buckets {
		within := b.count - earlier.buckets[i].count
		if within >= share*total {
			if math.IsInf(b.bound, 1) {
				return low
			}
			return low + (b.bound-low)*(share*total-before)/max(1, within-before)
		}
		low, before = b.bound, within
	}
	return low
}
