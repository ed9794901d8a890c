package clusters

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"portico.dev/e2e/bench/proxied"
	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// Settings are the sizes and durations of the benchmark.
type Settings struct {
	Rounds int           `json:"rounds"`
	Warm   time.Duration `json:"-"`
	Cell   time.Duration `json:"cellNanoseconds"`
	Settle time.Duration `json:"-"`
	// PerSecond is the rate of the paced load, over Connections.
	PerSecond   int             `json:"requestsPerSecond"`
	Connections int             `json:"connections"`
	PacedRounds int             `json:"pacedRounds"`
	PacedWarm   time.Duration   `json:"-"`
	Paced       time.Duration   `json:"pacedNanoseconds"`
	Balance     BalanceSettings `json:"balance"`
}

// Full returns the settings of the published results. A run takes five minutes.
func Full() Settings {
	return Settings{
		Rounds: 5, Warm: 70 * time.Millisecond, Cell: 360 * time.Millisecond, Settle: 3 * time.Second,
		PerSecond: 5000, Connections: 8, PacedRounds: 5, PacedWarm: 500 * time.Millisecond, Paced: 2 * time.Second,
		Balance: BalanceSettings{Clients: 32, Connections: 4, Steady: 2 * time.Second, Down: 2 * time.Second, Rest: 10 * time.Second, Window: 5 * time.Second},
	}
}

// Quick returns settings that show only that the benchmark works.
func Quick() Settings {
	return Settings{
		Rounds: 1, Warm: 20 * time.Millisecond, Cell: 100 * time.Millisecond,
		PerSecond: 200, Connections: 4, PacedRounds: 1, PacedWarm: 100 * time.Millisecond, Paced: 300 * time.Millisecond,
		Balance: BalanceSettings{Clients: 8, Connections: 4, Steady: 500 * time.Millisecond, Down: 500 * time.Millisecond, Rest: 4 * time.Second, Window: time.Second},
	}
}

const (
	// front is the name of the front door among the servers.
	front = "front door, cluster"
	// floor is the name of the smallest relay.
	floor = "floor: the smallest relay"
	// one and three are the names of the Clusters.
	one, three = "one", "three"
)

// Run measures all servers. program is the aggregator to measure; if it is empty, the aggregator is built from the
// tree.
func Run(ctx context.Context, program string, s Settings, say func(string, ...any)) (*Report, error) {
	y, err := environment.New(program)
	if err != nil {
		return nil, err
	}
	r := &Report{Machine: measure.ThisMachine(), Settings: s}
	if err = r.run(ctx, y, s, say); err != nil {
		err = fmt.Errorf("%w\nthe front door's log ends:\n%s", err, y.Log())
	}
	if ended := y.Close(); err == nil {
		err = ended
	}
	r.Took = time.Since(r.Machine.Began)
	return r, err
}

func (r *Report) run(ctx context.Context, y *environment.Environment, s Settings, say func(string, ...any)) error {
	say("building and starting")
	backend, all, err := proxied.StartBare(y)
	if err != nil {
		return err
	}
	door, err := y.Front("front", environment.ClustersFlag)
	if err != nil {
		return err
	}
	if err := door.Grant(ctx); err != nil {
		return err
	}
	if err := door.RegisterCluster(ctx, one, backend); err != nil {
		return err
	}
	all = append(all, proxied.Subject{Name: front, Server: door.Server, Token: environment.UserToken, Prefix: environment.ClusterPath(one)})
	relay, err := y.RelayFloor()
	if err != nil {
		return err
	}
	all = append(all, proxied.Subject{Name: floor, Server: relay})
	if all, err = proxied.WithNginx(y, all); err != nil {
		return err
	}
	if err := environment.Pause(ctx, s.Settle); err != nil {
		return err
	}
	rounds := proxied.Settings{Rounds: s.Rounds, Warm: s.Warm, Cell: s.Cell}
	if r.Rows, err = proxied.Requests(ctx, all, proxied.Reads(), backend, rounds, say); err != nil {
		return err
	}
	if err := r.paced(ctx, all, backend, s, say); err != nil {
		return err
	}
	return r.balance(ctx, y, door, s.Balance, say)
}

// paced sends GETs at a fixed rate, so that the delays of servers with different costs are comparable.
func (r *Report) paced(ctx context.Context, all []proxied.Subject, backend *environment.Server, s Settings, say func(string, ...any)) error {
	rows := make([]PacedRow, len(all))
	for round := range s.PacedRounds {
		for _, k := range proxied.Order(len(all), round) {
			say("round %d of %d: %d requests a second, %s", round+1, s.PacedRounds, s.PerSecond, all[k].Name)
			got, err := pace(ctx, all[k], backend, s)
			if err != nil {
				return fmt.Errorf("%d requests a second: %w", s.PerSecond, err)
			}
			rows[k].Who = all[k].Name
			rows[k].intervals = append(rows[k].intervals, got)
		}
	}
	summarize(rows, s.PerSecond)
	r.Paced = rows
	return nil
}

func pace(ctx context.Context, w proxied.Subject, backend *environment.Server, s Settings) (environment.Interval, error) {
	ask := environment.Ask{Method: http.MethodGet, Token: w.Token, HTTP2: true}
	load, err := environment.NewPacedLoad(w.Server, ask, []string{w.Prefix + environment.Path(0) + "/small"}, s.Connections)
	if err != nil {
		return environment.Interval{}, err
	}
	defer load.Leave()
	if err := load.Connect(ctx); err != nil {
		return environment.Interval{}, err
	}
	return load.Measure(ctx, backend, s.PerSecond, s.PacedWarm, s.Paced)
}
