package environment

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"portico.dev/e2e/measure"
	"portico.dev/internal/pki"
)

// perConnection is the number of clients that share an HTTP/2 connection, like the controllers of one process.
const perConnection = 8

// Ask describes the requests of the concurrent clients.
type Ask struct {
	Method string
	Path   string
	Body   string
	Accept string
	Token  string
	HTTP2  bool
	// Clients is the number of concurrent clients. Each sends its next request after the previous response.
	Clients int
	// EachBody, if set, returns the body of each request. n is different for every request.
	EachBody func(n int64) string
}

// Answer contains the clients' view of the requests.
type Answer struct {
	Requests  int
	PerSecond float64
	P50, P99  time.Duration
}

// LoadGenerator is a set of clients of one server, with their connections.
type LoadGenerator struct {
	ask     Ask
	server  *Server
	clients []*http.Client
	count   counter
}

type counter struct {
	mu sync.Mutex
	n  int64
}

func (c *counter) next() int64 { c.mu.Lock(); defer c.mu.Unlock(); c.n++; return c.n }

// NewLoadGenerator does not connect yet. Leave closes the connections.
func NewLoadGenerator(s *Server, a Ask) (*LoadGenerator, error) {
	c := &LoadGenerator{ask: a, server: s}
	connections := a.Clients
	if a.HTTP2 {
		connections = (a.Clients + perConnection - 1) / perConnection
	}
	for range connections {
		client, err := NewClient(s, a.HTTP2)
		if err != nil {
			return nil, err
		}
		c.clients = append(c.clients, client)
	}
	return c, nil
}

// NewClient returns a client with separate connections.
func NewClient(s *Server, http2 bool) (*http.Client, error) {
	config, err := pki.ClientConfig(pki.ClientOptions{ServerName: "127.0.0.1", Roots: s.roots, HTTP1Only: !http2})
	if err != nil {
		return nil, err
	}
	return &http.Client{
		Transport:     &http.Transport{TLSClientConfig: config, DisableCompression: true, MaxIdleConnsPerHost: 10, Protocols: protocols(http2)},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// Leave closes the connections.
func (c *LoadGenerator) Leave() {
	for _, client := range c.clients {
		client.CloseIdleConnections()
	}
}

// Run sends requests for the duration d and waits for the last responses. A response other than 2xx is an error.
func (c *LoadGenerator) Run(ctx context.Context, d time.Duration) (Answer, error) {
	ctx, stop := context.WithTimeout(ctx, d+time.Minute)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	took := make([][]time.Duration, c.ask.Clients)
	began := time.Now()
	until := began.Add(d)
	var asking sync.WaitGroup
	for i := range c.ask.Clients {
		asking.Go(func() {
			client := c.clients[i*len(c.clients)/c.ask.Clients]
			for first := true; first || time.Now().Before(until); first = false {
				start := time.Now()
				if err := c.once(ctx, client); err != nil {
					cancel(err) // one failure invalidates the interval
					return
				}
				took[i] = append(took[i], time.Since(start))
			}
		})
	}
	asking.Wait()
	lasted := time.Since(began)
	if err := context.Cause(ctx); err != nil {
		return Answer{}, fmt.Errorf("%s: %w", c.server.Name, err)
	}
	return answer(took, lasted), nil
}

// answer summarizes the durations of the clients' requests.
func answer(took [][]time.Duration, lasted time.Duration) Answer {
	all := slices.Concat(took...)
	slices.Sort(all)
	return Answer{
		Requests: len(all), PerSecond: float64(len(all)) / lasted.Seconds(),
		P50: measure.Quantile(all, 0.5), P99: measure.Quantile(all, 0.99),
	}
}

func (c *LoadGenerator) once(ctx context.Context, client *http.Client) error {
	body := c.ask.Body
	if c.ask.EachBody != nil {
		body = c.ask.EachBody(c.count.next())
	}
	return Send(ctx, c.server, c.ask, body, client)
}

// Send sends one request and reads the response. A response other than 2xx is an error.
func Send(ctx context.Context, s *Server, a Ask, body string, client *http.Client) error {
	r, err := NewRequest(ctx, s, a, body)
	if err != nil {
		return err
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // may contain an explanation
		return fmt.Errorf("%s %s: %s: %s", a.Method, a.Path, resp.Status, text)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// NewRequest creates one of the requests.
func NewRequest(ctx context.Context, s *Server, a Ask, body string) (*http.Request, error) {
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, a.Method, "https://"+s.Address+a.Path, from)
	if err != nil {
		return nil, err
	}
	accept := a.Accept
	if accept == "" {
		accept = "application/json"
	}
	r.Header["Accept"] = []string{accept}
	r.Header["User-Agent"] = []string{"portico-bench"}
	if body != "" {
		r.Header["Content-Type"] = []string{"application/json"}
	}
	if a.Token != "" {
		r.Header["Authorization"] = []string{"Bearer " + a.Token}
	}
	return r, nil
}
