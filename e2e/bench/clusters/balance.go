package clusters

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// BalanceSettings are the settings of the restart of a backend.
type BalanceSettings struct {
	// Clients send requests at once over Connections of HTTP/2.
	Clients     int `json:"clients"`
	Connections int `json:"connections"`
	// Steady is the time under load before the first Window, Down the time for which a backend is stopped, and Rest the
	// time from its start to the second Window.
	Steady time.Duration `json:"-"`
	Down   time.Duration `json:"downNanoseconds"`
	Rest   time.Duration `json:"restNanoseconds"`
	Window time.Duration `json:"windowNanoseconds"`
}

// BalanceRow contains the results of one server in front of several backends.
type BalanceRow struct {
	Who string `json:"server"`
	// Before and After are the shares of the backends before the restart of the first one, and after it.
	Before []Share `json:"before"`
	After  []Share `json:"after"`
	// Failed is the number of requests that failed, of all Requests.
	Failed   int64 `json:"failed"`
	Requests int64 `json:"requests"`
}

// Share is the load of one backend. Requests and CPU are parts of the sum of all backends.
type Share struct {
	Requests    float64 `json:"requests"`
	CPU         float64 `json:"cpu"`
	Connections float64 `json:"connections"`
}

// backendCount is the number of backends.
const backendCount = 3

// balance restarts one of several backends under load, behind a TCP load balancer and behind a front door. The load balancer is
// first, so that the front door has no connections to the backends then.
func (r *Report) balance(ctx context.Context, y *environment.Environment, door *environment.Front, s BalanceSettings, say func(string, ...any)) error {
	var backends []*environment.RestartableBackend
	var servers []*environment.Server
	var addresses []string
	for range backendCount {
		b, err := y.RestartableBackend()
		if err != nil {
			return err
		}
		backends, servers, addresses = append(backends, b), append(servers, b.Server), append(addresses, b.Address)
	}
	tcp, err := newBalancer(addresses)
	if err != nil {
		return err
	}
	defer tcp.close()
	try := func(name string, server *environment.Server, prefix string) error {
		say("a backend is restarted: %s", name)
		ask := environment.Ask{Method: http.MethodGet, Path: prefix + environment.Path(0) + "/small", Token: environment.UserToken, HTTP2: true}
		row, err := restart(ctx, server, ask, backends, s)
		if err != nil {
			return fmt.Errorf("restart of a backend, %s: %w", name, err)
		}
		row.Who = name
		r.Balance = append(r.Balance, *row)
		return nil
	}
	if err := try("TCP load balancer, round-robin", servers[0].At("balancer", tcp.address()), ""); err != nil {
		return err
	}
	if err := door.RegisterCluster(ctx, three, servers...); err != nil {
		return err
	}
	return try(front, door.Server, environment.ClusterPath(three))
}

// restart stops and starts the first backend under load.
func restart(ctx context.Context, server *environment.Server, ask environment.Ask, backends []*environment.RestartableBackend, s BalanceSettings) (*BalanceRow, error) {
	l, err := startLoad(ctx, server, ask, s)
	if err != nil {
		return nil, err
	}
	defer l.stop()
	row := &BalanceRow{}
	if err := environment.Pause(ctx, s.Steady); err != nil {
		return nil, err
	}
	if row.Before, err = shares(ctx, backends, s.Window); err != nil {
		return nil, err
	}
	if err := backends[0].Stop(); err != nil {
		return nil, err
	}
	if err := environment.Pause(ctx, s.Down); err != nil {
		return nil, err
	}
	if err := backends[0].Start(); err != nil {
		return nil, err
	}
	if err := environment.Pause(ctx, s.Rest); err != nil {
		return nil, err
	}
	if row.After, err = shares(ctx, backends, s.Window); err != nil {
		return nil, err
	}
	l.stop()
	row.Failed, row.Requests = l.failed.Load(), l.sent.Load()
	return row, nil
}

// usage contains the counters of a backend.
type usage struct {
	requests float64
	cpu      time.Duration
}

// shares returns the load of each backend in a window.
func shares(ctx context.Context, backends []*environment.RestartableBackend, window time.Duration) ([]Share, error) {
	before, err := usages(backends)
	if err != nil {
		return nil, err
	}
	if err := environment.Pause(ctx, window); err != nil {
		return nil, err
	}
	after, err := usages(backends)
	if err != nil {
		return nil, err
	}
	all := sharesOf(before, after)
	for i, b := range backends {
		if all[i].Connections, err = b.Connections(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func usages(backends []*environment.RestartableBackend) ([]usage, error) {
	all := make([]usage, len(backends))
	for i, b := range backends {
		var err error
		if all[i].requests, err = b.Requests(); err != nil {
			return nil, err
		}
		if all[i].cpu, err = measure.CPU(b.PID); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// sharesOf returns the parts of each backend in the growth of all counters.
func sharesOf(before, after []usage) []Share {
	all := make([]Share, len(after))
	var requests, cpu float64
	for i := range after {
		all[i].Requests, all[i].CPU = after[i].requests-before[i].requests, float64(after[i].cpu-before[i].cpu)
		requests, cpu = requests+all[i].Requests, cpu+all[i].CPU
	}
	for i := range all {
		all[i].Requests /= max(1, requests)
		all[i].CPU /= max(1, cpu)
	}
	return all
}

// load is a set of clients that go on after a failed request.
type load struct {
	cancel       context.CancelFunc
	clients      []*http.Client
	sending      sync.WaitGroup
	sent, failed atomic.Int64
}

// afterFailure is the time between a failed request of a client and its next one.
const afterFailure = 20 * time.Millisecond

func startLoad(ctx context.Context, server *environment.Server, ask environment.Ask, s BalanceSettings) (*load, error) {
	l := &load{}
	for range s.Connections {
		client, err := environment.NewClient(server, ask.HTTP2)
		if err != nil {
			return nil, err
		}
		// Several concurrent requests would open a connection each.
		if err := environment.Send(ctx, server, ask, "", client); err != nil {
			return nil, err
		}
		l.clients = append(l.clients, client)
	}
	ctx, l.cancel = context.WithCancel(ctx)
	for i := range s.Clients {
		client := l.clients[i%len(l.clients)]
		l.sending.Go(func() {
			for ctx.Err() == nil {
				err := environment.Send(ctx, server, ask, "", client)
				if ctx.Err() != nil {
					return
				}
				l.sent.Add(1)
				if err != nil {
					l.failed.Add(1)
					_ = environment.Pause(ctx, afterFailure) // the loop ends with ctx
				}
			}
		})
	}
	return l, nil
}

// stop ends the clients. It may be called twice.
func (l *load) stop() {
	l.cancel()
	l.sending.Wait()
	for _, client := range l.clients {
		client.CloseIdleConnections()
	}
}
