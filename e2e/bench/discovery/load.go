package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"portico.dev/internal/pki"
)

const (
	clients = 2
	think   = time.Millisecond // between a response and the next request
)

// sample contains the clients' view of one interval, and the CPU time of the front door.
type sample struct {
	Requests int
	P50, P99 time.Duration
	Bytes    int64         // of one encoded response
	CPU      time.Duration // of the front door, per request

	all []time.Duration // sorted
}

// join merges two samples.
func (s sample) join(other sample) sample {
	n := s.Requests + other.Requests
	if n == 0 {
		return s
	}
	all := slices.Sorted(slices.Values(slices.Concat(s.all, other.all)))
	cpu := s.CPU*time.Duration(s.Requests) + other.CPU*time.Duration(other.Requests)
	return sample{
		Requests: n, P50: quantile(all, 0.50), P99: quantile(all, 0.99), Bytes: other.Bytes, CPU: cpu / time.Duration(n), all: all,
	}
}

// load sends requests for one path.
type load struct {
	front   addresses
	clients []*http.Client
}

func newLoad(front addresses, roots []byte) (*load, error) {
	l := &load{front: front}
	for range clients {
		config, err := pki.ClientConfig(pki.ClientOptions{ServerName: "front.example.com", Roots: roots})
		if err != nil {
			return nil, err
		}
		l.clients = append(l.clients, &http.Client{Transport: newTransport(config)})
	}
	return l, nil
}

func newTransport(config *tls.Config) *http.Transport {
	return &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true}
}

func (l *load) close() {
	for _, c := range l.clients {
		c.CloseIdleConnections()
	}
}

func (l *load) run(ctx context.Context, path string, d time.Duration) (sample, error) {
	before, err := l.usage(ctx)
	if err != nil {
		return sample{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, d+30*time.Second)
	defer cancel()
	var mu sync.Mutex
	var all []time.Duration
	var size int64
	var failure error
	var asking sync.WaitGroup
	until := time.Now().Add(d)
	for _, c := range l.clients {
		asking.Go(func() {
			for time.Now().Before(until) {
				took, n, err := get(ctx, c, "https://"+l.front.Public+path)
				mu.Lock()
				all, size = append(all, took), n
				if err != nil {
					failure = err
				}
				mu.Unlock()
				if err != nil {
					return
				}
				time.Sleep(think)
			}
		})
	}
	asking.Wait()
	if failure != nil {
		return sample{}, failure
	}
	after, err := l.usage(ctx)
	if err != nil {
		return sample{}, err
	}
	slices.Sort(all)
	return sample{
		Requests: len(all), P50: quantile(all, 0.50), P99: quantile(all, 0.99),
		Bytes: size, CPU: (after.CPU - before.CPU) / time.Duration(len(all)), all: all,
	}, nil
}

func (l *load) usage(ctx context.Context) (usage, error) {
	var u usage
	err := l.control(ctx, "/usage", &u)
	return u, err
}

// control sends a control request to the front door.
func (l *load) control(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+l.front.Control+path, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, body)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(body, into)
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func get(ctx context.Context, c *http.Client, url string) (time.Duration, int64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, 0, err
	}
	r.Header.Set("Accept", aggregatedType+",application/json")
	r.Header.Set("Accept-Encoding", "gzip")
	began := time.Now()
	response, err := c.Do(r)
	if err != nil {
		return 0, 0, err
	}
	defer response.Body.Close()
	n, err := io.Copy(io.Discard, response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("get %s: answered %d", url, response.StatusCode)
	}
	return time.Since(began), n, err
}
