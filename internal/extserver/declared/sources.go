package declared

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"portico.dev/internal/extserver/httpclient"
	"portico.dev/internal/extserver/prometheus"
)

// maxHeaderBytes limits the size of a header value that is read from a file.
const maxHeaderBytes = 16 << 10

// HTTP fetches JSON or YAML from a URL. It does not follow redirects, so that credentials are only sent to the configured
// URL.
type HTTP struct {
	URL    string
	Access httpclient.Config
	// HeaderFiles maps header names to files with their values, which are read for every request.
	HeaderFiles map[string]string
	// Format is json or yaml.
	Format   string
	Timeout  time.Duration
	MaxBytes int64

	client lazyClient[*httpclient.Client]
}

// Fetch sends one request.
func (h *HTTP) Fetch(ctx context.Context) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	client, err := h.client.get(func() (*httpclient.Client, error) { return httpclient.New(h.Access) })
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/"+h.Format+", */*;q=0.5")
	for name, file := range h.HeaderFiles {
		value, err := readHeader(file)
		if err != nil {
			return nil, fmt.Errorf("header %s: %w", name, err)
		}
		r.Header.Set(name, value)
	}
	answer, err := client.Fetch(r, h.MaxBytes)
	if err != nil {
		return nil, err
	}
	switch {
	case answer.Code >= 300 && answer.Code < 400:
		return nil, fmt.Errorf("HTTP %d: it redirects to %q; redirects are not followed, so give that URL", answer.Code, answer.Header.Get("Location"))
	case answer.Code != http.StatusOK:
		return nil, fmt.Errorf("HTTP %d: %q", answer.Code, beginning(answer.Body))
	}
	return decoder(h.Format)(answer.Body)
}

// Close closes idle connections.
func (h *HTTP) Close() {
	if client, ok := h.client.made(); ok {
		client.Close()
	}
}

func readHeader(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := readBounded(f, maxHeaderBytes)
	if err != nil {
		return "", err
	}
	value := strings.TrimSpace(string(text))
	if value == "" {
		return "", errors.New(file + " is empty")
	}
	return value, nil
}

// lazyClient creates a client on first use, and retries after a failure.
type lazyClient[T any] struct {
	mu   sync.Mutex // makes check and creation atomic
	done bool
	it   T
}

func (l *lazyClient[T]) get(make func() (T, error)) (T, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done {
		return l.it, nil
	}
	it, err := make()
	if err == nil {
		l.it, l.done = it, true
	}
	return it, err
}

func (l *lazyClient[T]) made() (T, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.it, l.done
}

// File reads a file as JSON or YAML.
type File struct {
	Path string
	// Format is json or yaml.
	Format   string
	MaxBytes int64
}

// Fetch reads the file. It rejects named pipes and devices, because reading one may never end.
func (f *File) Fetch(context.Context) (any, error) {
	info, err := os.Stat(f.Path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", f.Path)
	}
	file, err := os.Open(f.Path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := readBounded(file, f.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	v, err := decoder(f.Format)(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	return v, nil
}

// Querier queries a Prometheus server. *prometheus.Client implements it.
type Querier interface {
	// Query evaluates promql at a point in time, which is now if at is zero.
	Query(ctx context.Context, promql string, at time.Time) (samples []prometheus.Sample, warnings []string, err error)
}

// Prometheus evaluates a query. It returns one item for each sample: {metric: {<label>: <value>}, value: <number>, timestamp:
// <time>}.
type Prometheus struct {
	Server prometheus.Config
	Query  string

	client lazyClient[Querier]
}

// Fetch evaluates the query. It omits NaN and infinities, which JSON cannot represent.
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
			// The strings refer to the response buffer. Clone them so that the buffer is not retained.
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

// Close closes idle connections.
func (p *Prometheus) Close() {
	if client, ok := p.client.made(); ok {
		if c, ok := client.(interface{ Close() }); ok {
			c.Close()
		}
	}
}
