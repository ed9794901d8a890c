package environment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"portico.dev/internal/pki"
)

// inFlight bounds the concurrent requests of a PacedLoad.
const inFlight = 256

// PacedLoad sends requests at a fixed rate, independently of the response times. The duration of a request is
// measured from its due time to the end of its response. Connections and paths are used in rotation.
type PacedLoad struct {
	ask     Ask
	server  *Server
	paths   []string
	clients []*http.Client
	dialed  atomic.Int64
	sent    atomic.Int64 // requests in all measurements; the rotation continues across measurements
}

// NewPacedLoad does not connect yet. Leave closes the connections. paths replaces the path of a.
func NewPacedLoad(s *Server, a Ask, paths []string, connections int) (*PacedLoad, error) {
	if len(paths) == 0 || connections < 1 {
		return nil, errors.New("a paced load needs a path and a connection")
	}
	config, err := pki.ClientConfig(pki.ClientOptions{ServerName: "127.0.0.1", Roots: s.roots})
	if err != nil {
		return nil, err
	}
	p := &PacedLoad{ask: a, server: s, paths: paths}
	for range connections {
		p.clients = append(p.clients, &http.Client{Transport: &http.Transport{
			TLSClientConfig: config, DisableCompression: true, Protocols: protocols(true),
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				p.dialed.Add(1)
				return (&net.Dialer{}).DialContext(ctx, network, address)
			},
		}})
	}
	return p, nil
}

// Connect sends a request over each connection, and then one to each path, because its backend may need a connection
// too. Without it, a client with several concurrent requests and no connection would open a connection for each.
func (p *PacedLoad) Connect(ctx context.Context) error {
	one := func(ctx context.Context, n int) error { return p.once(ctx, int64(n)) }
	if err := Concurrency(ctx, openers, 0, len(p.clients), one); err != nil {
		return err
	}
	return Concurrency(ctx, openers, len(p.clients), len(p.paths), one)
}

// Leave closes the connections.
func (p *PacedLoad) Leave() {
	for _, client := range p.clients {
		client.CloseIdleConnections()
	}
}

// Run sends perSecond requests per second for the duration d, and waits for the last responses. A response other than
// 2xx is an error.
func (p *PacedLoad) Run(ctx context.Context, perSecond int, d time.Duration) (Answer, error) {
	total := int64(d.Seconds() * float64(perSecond))
	if total == 0 {
		return Answer{}, nil
	}
	ctx, stop := context.WithTimeoutCause(ctx, d+time.Minute, errors.New("the answers took a minute longer than the requests"))
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	workers := min(inFlight, int(total))
	took := make([][]time.Duration, workers)
	began := time.Now()
	var asking sync.WaitGroup
	for i := range workers {
		asking.Go(func() {
			for {
				n := next.Add(1) - 1
				if n >= total {
					return
				}
				due := began.Add(time.Duration(n) * time.Second / time.Duration(perSecond))
				err := Pause(ctx, time.Until(due))
				if err == nil {
					err = p.once(ctx, p.sent.Add(1))
				}
				if err != nil {
					cancel(err) // one failure invalidates the interval
					return
				}
				took[i] = append(took[i], time.Since(due))
			}
		})
	}
	asking.Wait()
	lasted := time.Since(began)
	if err := context.Cause(ctx); err != nil {
		return Answer{}, fmt.Errorf("%s: %w", p.server.Name, err)
	}
	return answer(took, lasted), nil
}

func (p *PacedLoad) once(ctx context.Context, n int64) error {
	ask := p.ask
	ask.Path = p.paths[n%int64(len(p.paths))]
	return Send(ctx, p.server, ask, ask.Body, p.clients[n%int64(len(p.clients))])
}

// Measure is Run after a warm-up. It fails if a client reconnected, because the number of connections would then be
// wrong.
func (p *PacedLoad) Measure(ctx context.Context, backend *Server, perSecond int, warm, d time.Duration) (s Interval, err error) {
	if err := resetPeaks(p.server, backend); err != nil {
		return s, err
	}
	if _, err := p.Run(ctx, perSecond, warm); err != nil {
		return s, err
	}
	was, err := clocks(p.server, backend)
	if err != nil {
		return s, err
	}
	if s.Answer, err = p.Run(ctx, perSecond, d); err != nil {
		return s, err
	}
	is, err := clocks(p.server, backend)
	if err != nil {
		return s, err
	}
	n := time.Duration(s.Requests)
	s.Server, s.Backend, s.Client = (is[0]-was[0])/n, (is[1]-was[1])/n, (is[2]-was[2])/n
	if dialed := p.dialed.Load(); dialed > int64(len(p.clients)) {
		return s, fmt.Errorf("%s: %d connections were opened for %d", p.server.Name, dialed, len(p.clients))
	}
	s.Peak, s.BackendPeak, err = peaks(p.server, backend)
	return s, err
}
