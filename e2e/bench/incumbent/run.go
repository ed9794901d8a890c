package incumbent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
	"portico.dev/internal/tools/drill/faulty"
)

// Run measures both sides. program is the aggregator to measure; if it is empty, the aggregator is built from the
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
	g := &rig{y: y, theirs: theirs, say: say, Settings: s}
	if err = r.run(ctx, g); err != nil {
		err = fmt.Errorf("%w\nthe log ends:\n%s", err, y.Log())
	}
	if ended := y.Close(); err == nil {
		err = ended
	}
	r.Took = time.Since(r.Machine.Began)
	return r, err
}

// rig holds the common parts of a run.
type rig struct {
	Settings
	y       *environment.Environment
	theirs  environment.Kubernetes
	say     func(string, ...any)
	backend *environment.Server
	// started contains the duration of each start, in milliseconds.
	started struct{ ours, theirs []float64 }
}

func (r *Report) run(ctx context.Context, g *rig) (err error) {
	g.say("building and starting")
	if g.backend, err = g.y.Backend(); err != nil {
		return err
	}
	if r.Programs, err = programSizes(g); err != nil {
		return err
	}
	if err := r.first(ctx, g); err != nil {
		return err
	}
	if err := r.many(ctx, g); err != nil {
		return err
	}
	r.Start = starts(g)
	return nil
}

// first runs the measurements for which one pair of servers suffices: proxied requests and local objects.
func (r *Report) first(ctx context.Context, g *rig) error {
	ours, theirs, err := g.pair(ctx, "first")
	if err != nil {
		return err
	}
	if err := theirs.Manage(); err != nil {
		return err
	}
	for _, d := range []*environment.FrontDoor{ours.FrontDoor, theirs.FrontDoor} {
		if err := d.Grant(ctx); err != nil {
			return err
		}
		if err := d.Register(ctx, 0, 1); err != nil {
			return err
		}
	}
	if err := r.proxied(ctx, g, ours, theirs); err != nil {
		return err
	}
	if err := r.local(ctx, g, ours, theirs); err != nil {
		return err
	}
	return errors.Join(ours.Stop(), theirs.Stop())
}

// pair starts one server of each side. The side that starts first alternates.
func (g *rig) pair(ctx context.Context, name string) (ours *environment.Front, theirs *environment.Incumbent, err error) {
	one := func() error {
		var took time.Duration
		ours, took, err = g.y.FrontBeside(ctx, name+"-ours", nil)
		g.started.ours = append(g.started.ours, ms(took))
		return err
	}
	other := func() error {
		var took time.Duration
		theirs, took, err = g.y.Incumbent(ctx, name+"-theirs", g.theirs)
		g.started.theirs = append(g.started.theirs, ms(took))
		return err
	}
	turns := []func() error{one, other}
	if len(g.started.ours)%2 == 1 {
		slices.Reverse(turns)
	}
	return ours, theirs, errors.Join(turns[0](), turns[1]())
}

// order returns the numbers below n, in reverse order in every other round.
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

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func mib(n int64) float64        { return float64(n) / (1 << 20) }

// Settings are the sizes and durations of the benchmark.
type Settings struct {
	// number of rounds of proxied requests, of watches and of local objects
	Rounds, WatchRounds, LocalRounds int
	// Cell is the duration of one turn of requests, Watch of one turn of watches. LocalCell and LocalWatch are the
	// same for local objects.
	Warm, Cell, Watch, LocalCell, LocalWatch time.Duration
	// Many is the number of objects in the long lists.
	Many int
	// APIServices contains the number of APIServices of each pair. New is the number of APIServices that are created
	// afterwards, one by one.
	APIServices []int
	New         int
	// Rest is the idle time before the measurement of idle CPU, which takes Idle. Memory is measured at its end.
	Rest, Idle time.Duration
	// Faults is the number of faults to inject.
	Faults int
	// Dead is the minimum time that a backend stays dead after the deletion of its namespace.
	Dead time.Duration
}

// Full returns the settings of the published results. A run takes eight minutes.
func Full() Settings {
	return Settings{
		Rounds: 3, WatchRounds: 2, LocalRounds: 3, Warm: 60 * time.Millisecond, Cell: 300 * time.Millisecond, Watch: 1500 * time.Millisecond,
		LocalCell: 300 * time.Millisecond, LocalWatch: time.Second, Many: 10_000, APIServices: []int{0, 100, 1000}, New: 10,
		Rest: 30 * time.Second, Idle: time.Minute, Faults: len(faults), Dead: 15 * time.Second,
	}
}

// Quick returns settings that show only that the benchmark works.
func Quick() Settings {
	return Settings{
		Rounds: 1, WatchRounds: 1, LocalRounds: 1, Warm: 20 * time.Millisecond, Cell: 50 * time.Millisecond, Watch: time.Second,
		LocalCell: 30 * time.Millisecond, LocalWatch: time.Second, Many: 200, APIServices: []int{0, 10}, New: 2,
		Rest: time.Second, Idle: 2 * time.Second, Faults: 1, Dead: time.Second,
	}
}

// fault is a failure mode of a backend. If stores is true, the backend stores namespaced objects, which remain if
// they are not deleted with their namespace.
type fault struct {
	name   string
	stores bool
	begin  func(*faulty.Server) error
}

var faults = []fault{
	{"killed: connections are refused", false, func(s *faulty.Server) error { return s.SetFault(faulty.Refuse) }},
	{"stopped, as by SIGSTOP: connections stay open", false, func(s *faulty.Server) error { return s.SetFault(faulty.Blackhole) }},
	{"accepts TCP, never answers TLS", false, func(s *faulty.Server) error {
		return errors.Join(s.SetFault(faulty.Refuse), s.SetFault(faulty.Blackhole))
	}},
	{"TLS and HTTP/2 alive, never replies", false, func(s *faulty.Server) error { return s.SetFault(faulty.Hang) }},
	{"killed; the backend stores objects", true, func(s *faulty.Server) error { return s.SetFault(faulty.Refuse) }},
}
