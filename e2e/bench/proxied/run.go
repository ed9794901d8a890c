package proxied

import (
	"context"
	"fmt"
	"slices"
	"time"

	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// Settings are the durations of the benchmark.
type Settings struct {
	// number of rounds of requests and of watches
	Rounds, WatchRounds int
	Warm, Cell, Watch   time.Duration
	// Settle is the idle time of a new front door before it is measured.
	Settle time.Duration
	// Idle is the duration of the measurement of idle CPU.
	Idle time.Duration
}

// Full returns the settings of the published results. A run takes six minutes and a half.
func Full() Settings {
	return Settings{
		Rounds: 5, WatchRounds: 3, Warm: 70 * time.Millisecond, Cell: 360 * time.Millisecond, Watch: 2200 * time.Millisecond,
		Settle: 3 * time.Second, Idle: 5 * time.Second,
	}
}

// Quick returns settings that show only that the benchmark works.
func Quick() Settings {
	return Settings{Rounds: 1, WatchRounds: 1, Warm: 20 * time.Millisecond, Cell: 100 * time.Millisecond, Watch: time.Second, Idle: 500 * time.Millisecond}
}

// who is a server and a user.
type who struct {
	name   string
	server *environment.Server
	token  string
}

// The names of the servers and users.
const (
	direct = "straight to the backend"
	bareH2 = "bare ReverseProxy, HTTP/2 out"
	bareH1 = "bare ReverseProxy, HTTP/1.1 out"
	nginx  = "nginx, HTTP/1.1 out"
	admin  = "front door, administrator"
	user   = "front door, user by RBAC"
)

// option is a front door with one changed setting.
type option struct {
	name  string
	flags []string
}

var options = []option{
	{"with an access log", []string{"--access-log=true"}},
	{"without audit log", []string{"--audit-log-path="}},
	{"without priority and fairness", []string{"--enable-priority-and-fairness=false"}},
}

// Run measures all cells. program is the aggregator to measure; if it is empty, the aggregator is built from the
// tree.
func Run(ctx context.Context, program string, s Settings, say func(string, ...any)) (*Report, error) {
	y, err := environment.New(program)
	if err != nil {
		return nil, err
	}
	r := &Report{Machine: measure.ThisMachine(), Rounds: s.Rounds, Cell: s.Cell}
	err = r.run(ctx, y, s, say)
	if err != nil {
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
	backend, err := y.Backend()
	if err != nil {
		return err
	}
	all := []who{{name: direct, server: backend}}
	for _, http2 := range []bool{true, false} {
		bare, err := y.Bare(http2)
		if err != nil {
			return err
		}
		all = append(all, who{name: map[bool]string{true: bareH2, false: bareH1}[http2], server: bare})
	}
	front, err := open(ctx, y, "front")
	if err != nil {
		return err
	}
	all = append(all, who{admin, front.Server, environment.AdminToken}, who{user, front.Server, environment.UserToken})
	asked := all // plus nginx for requests, if it is installed
	if environment.Nginx() != "" {
		other, err := y.StartNginx("nginx", 0)
		if err != nil {
			return err
		}
		asked = append(slices.Clip(all), who{name: nginx, server: other})
	}
	if err := environment.Pause(ctx, s.Settle); err != nil {
		return err
	}
	if err := r.requests(ctx, asked, backend, s, say); err != nil {
		return err
	}
	say("all of them are left alone")
	if err := r.idle(ctx, all, s); err != nil {
		return err
	}
	if err := r.watches(ctx, all, backend, s, say); err != nil {
		return err
	}
	return r.options(ctx, y, front, backend, s, say)
}

// idle measures the CPU of the servers without requests. It is significant compared with a thousand events per
// second.
func (r *Report) idle(ctx context.Context, all []who, s Settings) error {
	r.Idle = map[string]float64{}
	began, before := time.Now(), map[string]time.Duration{}
	for _, w := range all {
		used, err := measure.CPU(w.server.PID)
		if err != nil {
			return err
		}
		before[w.name] = used
	}
	if err := environment.Pause(ctx, s.Idle); err != nil {
		return err
	}
	for _, w := range all {
		used, err := measure.CPU(w.server.PID)
		if err != nil {
			return err
		}
		r.Idle[w.name] = us(used-before[w.name]) / time.Since(began).Seconds()
	}
	return nil
}

// open starts a front door and registers the backend with it.
func open(ctx context.Context, y *environment.Environment, name string, flags ...string) (*environment.Front, error) {
	program, err := y.Aggregator()
	if err != nil {
		return nil, err
	}
	return openBuild(ctx, y, program, name, flags...)
}

func openBuild(ctx context.Context, y *environment.Environment, program, name string, flags ...string) (*environment.Front, error) {
	front, err := y.FrontOf(program, name, flags...)
	if err != nil {
		return nil, err
	}
	if err := front.Grant(ctx); err != nil {
		return nil, err
	}
	return front, front.Register(ctx, 0, 1)
}

// requests runs the cells in rounds. Every other round has the opposite order of servers.
func (r *Report) requests(ctx context.Context, all []who, backend *environment.Server, s Settings, say func(string, ...any)) error {
	for _, c := range Cells() {
		for _, w := range all {
			r.Rows = append(r.Rows, Row{Cell: c, Who: w.name})
		}
	}
	for round := range s.Rounds {
		for i, c := range Cells() {
			rows := r.Rows[i*len(all):][:len(all)]
			for _, k := range order(len(all), round) {
				say("round %d of %d: %s, %s", round+1, s.Rounds, c, all[k].name)
				got, err := once(ctx, all[k], c, backend, s)
				if err != nil {
					return fmt.Errorf("%s: %w", c, err)
				}
				rows[k].stretches = append(rows[k].stretches, got)
			}
		}
	}
	for i := range Cells() {
		summarize(r.Rows[i*len(all):][:len(all)])
	}
	return nil
}

func order(n, round int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	if round%2 == 1 {
		slices.Reverse(all)
	}
	return all
}

func once(ctx context.Context, w who, c Cell, backend *environment.Server, s Settings) (environment.Interval, error) {
	generator, err := environment.NewLoadGenerator(w.server, c.Load(w.token))
	if err != nil {
		return environment.Interval{}, err
	}
	defer generator.Leave()
	return generator.Measure(ctx, backend, s.Warm, s.Cell)
}

func (r *Report) watches(ctx context.Context, all []who, backend *environment.Server, s Settings, say func(string, ...any)) error {
	for _, c := range WatchCells() {
		rows := make([]WatchRow, len(all))
		for i, w := range all {
			rows[i] = WatchRow{WatchCell: c, Who: w.name}
		}
		for round := range s.WatchRounds {
			for _, k := range order(len(all), round) {
				say("round %d of %d: %d watches, %s, %s", round+1, s.WatchRounds, c.Streams, Protocol(c.HTTP2), all[k].name)
				got, err := listen(ctx, all[k], c, backend, s)
				if err != nil {
					return fmt.Errorf("%d watches, %s: %w", c.Streams, Protocol(c.HTTP2), err)
				}
				rows[k].deliveries = append(rows[k].deliveries, got)
			}
		}
		summarizeWatches(rows, r.Idle, s.Watch)
		r.Watches = append(r.Watches, rows...)
	}
	return nil
}

func listen(ctx context.Context, w who, c WatchCell, backend *environment.Server, s Settings) (environment.Delivery, error) {
	streams, err := environment.Open(ctx, w.server, c.Load(w.token), c.Streams)
	if err != nil {
		return environment.Delivery{}, err
	}
	defer streams.Close()
	return streams.Measure(ctx, backend, s.Watch/4, s.Watch)
}

// options measures the cost of single settings, with 32 concurrent clients.
func (r *Report) options(ctx context.Context, y *environment.Environment, front *environment.Front, backend *environment.Server, s Settings, say func(string, ...any)) error {
	all := []who{{"as above", front.Server, environment.UserToken}}
	for i, o := range options {
		say("starting a front door %s", o.name)
		other, err := open(ctx, y, fmt.Sprintf("option-%d", i), o.flags...)
		if err != nil {
			return err
		}
		all = append(all, who{o.name, other.Server, environment.UserToken})
	}
	c := Cell{Operation: operations[0].name, HTTP2: true, Clients: 32, of: operations[0]}
	rows := make([]Row, len(all))
	for i, w := range all {
		rows[i] = Row{Cell: c, Who: w.name}
	}
	for round := range s.Rounds {
		for _, k := range order(len(all), round) {
			say("round %d of %d: %s, %s", round+1, s.Rounds, c, all[k].name)
			got, err := once(ctx, all[k], c, backend, s)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", c, all[k].name, err)
			}
			rows[k].stretches = append(rows[k].stretches, got)
		}
	}
	summarizeAgainst(rows, 0, 0)
	r.Options = rows
	return nil
}
