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

// Subject is a server and a user.
type Subject struct {
	Name   string
	Server *environment.Server
	Token  string
	// Prefix precedes the paths of the backend.
	Prefix string
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
	backend, all, err := StartBare(y)
	if err != nil {
		return err
	}
	front, err := open(ctx, y, "front")
	if err != nil {
		return err
	}
	all = append(all, Subject{Name: admin, Server: front.Server, Token: environment.AdminToken}, Subject{Name: user, Server: front.Server, Token: environment.UserToken})
	asked, err := WithNginx(y, all)
	if err != nil {
		return err
	}
	if err := environment.Pause(ctx, s.Settle); err != nil {
		return err
	}
	if r.Rows, err = Requests(ctx, asked, Cells(), backend, s, say); err != nil {
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

// StartBare starts a backend and the bare proxies to it. The subjects begin with these three servers, in this order.
func StartBare(y *environment.Environment) (*environment.Server, []Subject, error) {
	backend, err := y.Backend()
	if err != nil {
		return nil, nil, err
	}
	all := []Subject{{Name: direct, Server: backend}}
	for _, http2 := range []bool{true, false} {
		bare, err := y.Bare(http2)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, Subject{Name: map[bool]string{true: bareH2, false: bareH1}[http2], Server: bare})
	}
	return backend, all, nil
}

// WithNginx starts nginx, if it is installed, and returns the subjects with it.
func WithNginx(y *environment.Environment, all []Subject) ([]Subject, error) {
	if environment.Nginx() == "" {
		return all, nil
	}
	server, err := y.StartNginx("nginx", 0)
	return append(slices.Clip(all), Subject{Name: nginx, Server: server}), err
}

// idle measures the CPU of the servers without requests. It is significant compared with a thousand events per
// second.
func (r *Report) idle(ctx context.Context, all []Subject, s Settings) error {
	r.Idle = map[string]float64{}
	began, before := time.Now(), map[string]time.Duration{}
	for _, w := range all {
		used, err := measure.CPU(w.Server.PID)
		if err != nil {
			return err
		}
		before[w.Name] = used
	}
	if err := environment.Pause(ctx, s.Idle); err != nil {
		return err
	}
	for _, w := range all {
		used, err := measure.CPU(w.Server.PID)
		if err != nil {
			return err
		}
		r.Idle[w.Name] = us(used-before[w.Name]) / time.Since(began).Seconds()
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

// Requests runs the cells in rounds, and returns a row for each cell and subject. Every other round has the opposite order of servers.
// The subjects begin with those of StartBare.
func Requests(ctx context.Context, all []Subject, cells []Cell, backend *environment.Server, s Settings, say func(string, ...any)) ([]Row, error) {
	var table []Row
	for _, c := range cells {
		for _, w := range all {
			table = append(table, Row{Cell: c, Who: w.Name})
		}
	}
	for round := range s.Rounds {
		for i, c := range cells {
			rows := table[i*len(all):][:len(all)]
			for _, k := range Order(len(all), round) {
				say("round %d of %d: %s, %s", round+1, s.Rounds, c, all[k].Name)
				got, err := once(ctx, all[k], c, backend, s)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", c, err)
				}
				rows[k].stretches = append(rows[k].stretches, got)
			}
		}
	}
	for i := range cells {
		summarize(table[i*len(all):][:len(all)])
	}
	return table, nil
}

// Order returns the order of n servers in a round.
func Order(n, round int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	if round%2 == 1 {
		slices.Reverse(all)
	}
	return all
}

func once(ctx context.Context, w Subject, c Cell, backend *environment.Server, s Settings) (environment.Interval, error) {
	ask := c.Load(w.Token)
	ask.Path = w.Prefix + ask.Path
	generator, err := environment.NewLoadGenerator(w.Server, ask)
	if err != nil {
		return environment.Interval{}, err
	}
	defer generator.Leave()
	return generator.Measure(ctx, backend, s.Warm, s.Cell)
}

func (r *Report) watches(ctx context.Context, all []Subject, backend *environment.Server, s Settings, say func(string, ...any)) error {
	for _, c := range WatchCells() {
		rows := make([]WatchRow, len(all))
		for i, w := range all {
			rows[i] = WatchRow{WatchCell: c, Who: w.Name}
		}
		for round := range s.WatchRounds {
			for _, k := range Order(len(all), round) {
				say("round %d of %d: %d watches, %s, %s", round+1, s.WatchRounds, c.Streams, Protocol(c.HTTP2), all[k].Name)
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

func listen(ctx context.Context, w Subject, c WatchCell, backend *environment.Server, s Settings) (environment.Delivery, error) {
	streams, err := environment.Open(ctx, w.Server, c.Load(w.Token), c.Streams)
	if err != nil {
		return environment.Delivery{}, err
	}
	defer streams.Close()
	return streams.Measure(ctx, backend, s.Watch/4, s.Watch)
}

// options measures the cost of single settings, with 32 concurrent clients.
func (r *Report) options(ctx context.Context, y *environment.Environment, front *environment.Front, backend *environment.Server, s Settings, say func(string, ...any)) error {
	all := []Subject{{Name: "as above", Server: front.Server, Token: environment.UserToken}}
	for i, o := range options {
		say("starting a front door %s", o.name)
		other, err := open(ctx, y, fmt.Sprintf("option-%d", i), o.flags...)
		if err != nil {
			return err
		}
		all = append(all, Subject{Name: o.name, Server: other.Server, Token: environment.UserToken})
	}
	c := Cell{Operation: operations[0].name, HTTP2: true, Clients: 32, of: operations[0]}
	rows := make([]Row, len(all))
	for i, w := range all {
		rows[i] = Row{Cell: c, Who: w.Name}
	}
	for round := range s.Rounds {
		for _, k := range Order(len(all), round) {
			say("round %d of %d: %s, %s", round+1, s.Rounds, c, all[k].Name)
			got, err := once(ctx, all[k], c, backend, s)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", c, all[k].Name, err)
			}
			rows[k].stretches = append(rows[k].stretches, got)
		}
	}
	summarizeAgainst(rows, 0, 0)
	r.Options = rows
	return nil
}
