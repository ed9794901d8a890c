// Package prometheus is a client for the query API of a Prometheus server: instant queries and series.
package prometheus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"portico.dev/internal/extserver/httpclient"
)

const (
	// longQuery is the size up to which queries are sent in the URL. Longer ones are sent with POST.
	longQuery = 2 << 10
	// maxConcurrent limits concurrent queries. It is below Prometheus's default limit of 20.
	maxConcurrent = 8
)

// Config configures a Client.
type Config struct {
	// URL is the URL of the server, with the path prefix of /api/v1 if it has one. Required.
	URL string
	// Access configures the CA, the client certificate, the token and additional headers.
	Access httpclient.Config
	// Timeout limits one query, and is also sent to the server. Default: 10 s.
	Timeout time.Duration
	// MaxBytes limits the size of a response. Default: 16 MiB.
	MaxBytes int64
}

// Client queries a Prometheus server, or another server with its HTTP API (Thanos, Mimir, VictoriaMetrics). It is safe for
// concurrent use. At most eight queries run at a time; further ones wait.
type Client struct {
	config  Config
	base    *url.URL
	http    *httpclient.Client
	slots   *semaphore.Weighted
	trouble atomic.Pointer[error]
}

// Sample is one element of a vector.
type Sample struct {
	Metric    map[string]string // the labels, including __name__ if the query preserves it
	Value     float64
	Timestamp time.Time
}

// New returns a Client. It reads the files that c names and sends no requests.
func New(c Config) (*Client, error) {
	base, err := url.Parse(c.URL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" || base.User != nil || base.RawQuery != "" {
		return nil, fmt.Errorf("prometheus URL %q: want http://HOST:PORT/PATH or https://, without user and query", c.URL)
	}
	if c.Timeout <= 0 {
		c.Timeout = 10 * time.Second
	}
	if c.MaxBytes <= 0 {
		c.MaxBytes = 16 << 20
	}
	access, err := httpclient.New(c.Access)
	if err != nil {
		return nil, fmt.Errorf("prometheus: %w", err)
	}
	return &Client{config: c, base: base, http: access, slots: semaphore.NewWeighted(maxConcurrent)}, nil
}

// Query evaluates promql at a point in time, which is now if at is zero. A result other than a vector or a scalar is an
// error. Warnings report that the result may be incomplete.
func (c *Client) Query(ctx context.Context, promql string, at time.Time) ([]Sample, []string, error) {
	form := url.Values{"query": {promql}, "timeout": {seconds(c.config.Timeout)}}
	if !at.IsZero() {
		form.Set("time", unix(at))
	}
	data, warnings, err := c.query(ctx, "query", form)
	if err != nil {
		return nil, nil, err
	}
	samples, left, err := parseVector(data)
	if err != nil {
		return nil, nil, fmt.Errorf("prometheus: query %s: %w", truncateQuery(promql), err)
	}
	if left > 0 {
		warnings = append(warnings, fmt.Sprintf("%d native histograms left out; histogram_count() or histogram_sum() makes numbers of them", left))
	}
	return samples, warnings, nil
}

// Series returns the label sets that any selector in match has selected since start. If start is zero, the server determines
// the range.
func (c *Client) Series(ctx context.Context, match []string, start time.Time) ([]map[string]string, error) {
	form := url.Values{"match[]": match}
	if !start.IsZero() {
		form.Set("start", unix(start))
	}
	data, _, err := c.query(ctx, "series", form)
	if err != nil {
		return nil, err
	}
	series, err := parseSeries(data)
	if err != nil {
		return nil, fmt.Errorf("prometheus: series: %w", err)
	}
	return series, nil
}

// LastError returns the error of the last request, nil if it succeeded. An invalid query counts as a success, because the
// server has processed it.
func (c *Client) LastError() error {
	if p := c.trouble.Load(); p != nil {
		return *p
	}
	return nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.Close() }

func (c *Client) query(ctx context.Context, endpoint string, form url.Values) ([]byte, []string, error) {
	bounded, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	if err := c.slots.Acquire(bounded, 1); err != nil {
		return nil, nil, fmt.Errorf("prometheus: %d queries are in flight already: %w", maxConcurrent, err)
	}
	defer c.slots.Release(1)
	data, warnings, err := c.fetch(bounded, endpoint, form)
	var refused *Error
	switch {
	case err == nil, errors.As(err, &refused) && refused.Question():
		c.trouble.Store(nil)
	case ctx.Err() == nil: // cancellation by the caller is not an error of the server
		c.trouble.Store(&err)
	}
	return data, warnings, err
}

func (c *Client) fetch(ctx context.Context, endpoint string, form url.Values) ([]byte, []string, error) {
	r, err := c.request(ctx, endpoint, form.Encode())
	if err != nil {
		return nil, nil, err
	}
	answer, err := c.http.Fetch(r, c.config.MaxBytes)
	if err != nil {
		return nil, nil, fmt.Errorf("prometheus: %w", err)
	}
	return parseEnvelope(answer)
}

func (c *Client) request(ctx context.Context, endpoint, form string) (*http.Request, error) {
	address := *c.base.JoinPath("api", "v1", endpoint)
	if len(form) <= longQuery {
		address.RawQuery = form
		return http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address.String(), bytes.NewReader([]byte(form)))
	if err == nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return r, err
}

func unix(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }

func seconds(d time.Duration) string {
	return strconv.FormatInt(int64(max(d/time.Millisecond, 1)), 10) + "ms"
}

// truncateQuery formats a query for an error message.
func truncateQuery(promql string) string {
	runes := []rune(strings.Join(strings.Fields(promql), " "))
	if len(runes) > 200 {
		runes = slices.Concat(runes[:200], []rune("…"))
	}
	return strconv.Quote(string(runes))
}
