package gateway

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// The paths of a request. Each is a group of the backend with a separate APIService.
const (
	directly = iota
	throughBare
	throughGateway
	throughFloor
	ways
)

var names = [ways]string{"no hop", "a bare ReverseProxy", "the gateway", "floor: the smallest relay"}

// Settings are the sizes and durations of the benchmark.
type Settings struct {
	// number of rounds of requests and of watches
	Rounds, WatchRounds int
	// Warm and Cell are the durations of one turn of requests. Watch is the duration of one turn with Streams
	// watches.
	Warm, Cell, Watch time.Duration
	Streams           int
	// Rest is the idle time before the measurement of idle CPU, which takes Idle.
	Rest, Idle time.Duration
}

// Full returns the settings of the published results. A run takes six and a half minutes.
func Full() Settings {
	return Settings{Rounds: 7, WatchRounds: 5, Warm: 200 * time.Millisecond, Cell: time.Second, Watch: 4 * time.Second, Streams: 1000, Rest: 15 * time.Second, Idle: 30 * time.Second}
}

// Quick returns settings that show only that the benchmark works.
func Quick() Settings {
	return Settings{Rounds: 1, WatchRounds: 1, Warm: 20 * time.Millisecond, Cell: 50 * time.Millisecond, Watch: 2 * time.Second, Streams: 50, Rest: time.Second, Idle: 2 * time.Second}
}

// Cell is a kind of request with a number of concurrent clients. The clients use HTTP/2.
type Cell struct {
	Operation string `json:"operation"`
	Clients   int    `json:"clients"`

	below string
}

func (c Cell) String() string { return fmt.Sprintf("%s, %d at once", c.Operation, c.Clients) }

func cells() []Cell {
	return []Cell{{"GET 1 KB", 1, "/small"}, {"GET 1 KB", 32, "/small"}, {"GET 1 KB", 256, "/small"}, {"list 100 KB", 32, ""}}
}

// rig holds the common parts of a run. hops are the processes between kube-apiserver and the backend, or the backend
// itself without a hop.
type rig struct {
	Settings
	say     func(string, ...any)
	theirs  *environment.Incumbent
	hops    [ways]*environment.Server
	backend *environment.Server
}

// Run measures all cells. program is the aggregator to measure; if it is empty, the aggregator is built from the
// tree.
func Run(ctx context.Context, program string, theirs environment.Kubernetes, s Settings, say func(string, ...any)) (*Report, error) {
	version, err := theirs.Version()
	if err != nil {
		return nil, err
	}
	y, err := environment.New(program)
	if err != nil {
		return nil, err
	}
	r := &Report{Machine: measure.ThisMachine(), Version: version, Settings: s}
	if err = r.run(ctx, y, theirs, &rig{Settings: s, say: say}); err != nil {
		err = fmt.Errorf("%w\nthe log ends:\n%s", err, y.Log())
	}
	if ended := y.Close(); err == nil {
		err = ended
	}
	r.Took = time.Since(r.Machine.Began)
	return r, err
}

func (r *Report) run(ctx context.Context, y *environment.Environment, theirs environment.Kubernetes, g *rig) (err error) {
	g.say("building and starting")
	if g.backend, err = y.Backend(); err != nil {
		return err
	}
	if g.theirs, _, err = y.Incumbent(ctx, "theirs", theirs); err != nil {
		return err
	}
	if err := g.theirs.Manage(); err != nil {
		return err
	}
	if err := g.theirs.Grant(ctx); err != nil {
		return err
	}
	if err := g.theirs.Register(ctx, directly, directly+1); err != nil {
		return err
	}
	before, err := r.idle(ctx, g, nil)
	if err != nil {
		return err
	}
	bare, err := y.Bare(true)
	if err != nil {
		return err
	}
	if err := g.theirs.RegisterThrough(ctx, bare, throughBare); err != nil {
		return err
	}
	gateway, err := g.theirs.Gateway(ctx)
	if err != nil {
		return err
	}
	if err := g.theirs.RegisterAdopted(ctx, gateway, throughGateway); err != nil {
		return err
	}
	after, err := r.idle(ctx, g, gateway.Server)
	if err != nil {
		return err
	}
	floor, err := y.RelayFloor(environment.GatewayScheduler)
	if err != nil {
		return err
	}
	if err := g.theirs.RegisterThrough(ctx, floor, throughFloor); err != nil {
		return err
	}
	g.hops = [ways]*environment.Server{g.backend, bare, gateway.Server, floor}
	r.Idle = []IdleRow{*before, *after}
	if err := r.requests(ctx, g); err != nil {
		return err
	}
	return r.watches(ctx, g)
}

// idle measures the CPU of kube-apiserver, and of the gateway if there is one, without requests.
func (r *Report) idle(ctx context.Context, g *rig, gateway *environment.Server) (*IdleRow, error) {
	row := &IdleRow{Who: "without a gateway"}
	pids := []int{g.theirs.PID}
	if gateway != nil {
		row.Who, pids = "with a gateway", append(pids, gateway.PID)
	}
	g.say("all of them are left alone, %s", row.Who)
	if err := environment.Pause(ctx, g.Rest); err != nil {
		return nil, err
	}
	was, err := clocks(pids)
	if err != nil {
		return nil, err
	}
	if err := environment.Pause(ctx, g.Settings.Idle); err != nil {
		return nil, err
	}
	is, err := clocks(pids)
	if err != nil {
		return nil, err
	}
	row.KubeAPIServer = ms(is[0]-was[0]) / g.Settings.Idle.Seconds()
	if gateway == nil {
		return row, nil
	}
	row.Gateway = ms(is[1]-was[1]) / g.Settings.Idle.Seconds()
	rss, err := measure.RSS(gateway.PID)
	if err != nil {
		return nil, err
	}
	row.RSS = mib(rss)
	peak, err := measure.PeakRSS(gateway.PID)
	row.Peak = mib(peak)
	return row, err
}

func clocks(pids []int) (all []time.Duration, err error) {
	for _, pid := range pids {
		used, err := measure.CPU(pid)
		if err != nil {
			return nil, err
		}
		all = append(all, used)
	}
	return all, nil
}

func (r *Report) requests(ctx context.Context, g *rig) error {
	all := cells()
	rows := make([]Row, len(all)*ways)
	for round := range g.Rounds {
		for i, c := range all {
			for _, way := range order(round) {
				g.say("round %d of %d: %s, %s", round+1, g.Rounds, c, names[way])
				got, err := measureCell(ctx, g, way, c)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", c, names[way], err)
				}
				row := &rows[i*ways+way]
				row.Cell, row.Way = c, names[way]
				row.intervals = append(row.intervals, got)
			}
		}
	}
	for i := range all {
		summarize(rows[i*ways:][:ways])
	}
	r.Requests = rows
	return nil
}

// measureCell returns an interval with the hop as its Backend.
func measureCell(ctx context.Context, g *rig, way int, c Cell) (environment.Interval, error) {
	generator, err := environment.NewLoadGenerator(g.theirs.Server, environment.Ask{
		Method: http.MethodGet, Path: environment.Path(way) + c.below, Token: environment.UserToken, HTTP2: true, Clients: c.Clients,
	})
	if err != nil {
		return environment.Interval{}, err
	}
	defer generator.Leave()
	return generator.Measure(ctx, g.hops[way], g.Warm, g.Cell)
}

func (r *Report) watches(ctx context.Context, g *rig) error {
	rows := make([]WatchRow, ways)
	for way := range rows {
		rows[way].Way, rows[way].Streams = names[way], g.Streams
	}
	for round := range g.WatchRounds {
		for _, way := range order(round) {
			g.say("round %d of %d: %d watches, %s", round+1, g.WatchRounds, g.Streams, names[way])
			got, err := listen(ctx, g, way)
			if err != nil {
				return fmt.Errorf("%d watches, %s: %w", g.Streams, names[way], err)
			}
			rows[way].deliveries = append(rows[way].deliveries, got)
		}
	}
	summarizeWatches(rows)
	r.Watches = rows
	return nil
}

func listen(ctx context.Context, g *rig, way int) (environment.Delivery, error) {
	streams, err := environment.Open(ctx, g.theirs.Server, environment.Ask{
		Method: http.MethodGet, Path: environment.Path(way) + "?watch=true&every=1s", Token: environment.UserToken, HTTP2: true,
	}, g.Streams)
	if err != nil {
		return environment.Delivery{}, err
	}
	defer streams.Close()
	return streams.Measure(ctx, g.hops[way], g.Watch/4, g.Watch)
}

// order returns the paths, in reverse order in every other round.
func order(round int) []int {
	all := []int{directly, throughBare, throughGateway, throughFloor}
	if round%2 == 1 {
		slices.Reverse(all)
	}
	return all
}
