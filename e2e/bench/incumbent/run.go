package incumbent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"portico.dev/e2e/bench/environment"
	"portico.dev/e2e/bench/measure"
	"portico.dev/internal/drill/faulty"
)

// Run makes the tables. program is the aggregator that is measured; empty, it is built from the tree.
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

// rig is what the parts of a run have in common.
type rig struct {
	Settings
	y       *environment.Environment
	theirs  environment.Kubernetes
	say     func(string, ...any)
	backend *environment.Server
	// started is how long each start took, in milliseconds.
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

// first is what one pair of sides is enough for: proxied requests and local objects.
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

// pair starts one of each side, by turns one or the other first.
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

// order are the numbers below n, in every other round from the last.
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

// Settings say how much there is, and how long it takes.
type Settings struct {
	// Rounds are of the proxied requests, WatchRounds of the watches, LocalRounds of the local objects.
	Rounds, WatchRounds, LocalRounds int
	// Cell is one turn of requests, Watch one of listening to watches; and so for local objects.
	Warm, Cell, Watch, LocalCell, LocalWatch time.Duration
	// Many is how many objects the long lists have.
	Many int
	// APIServices is how many each pair of sides has; New is how many more are made, one after the other.
	APIServices []int
	New         int
	// Rest is how long all are left alone before the time in which their idle CPU is read, and at the end of that their
	// memory.
	Rest, Idle time.Duration
	// Faults is how many of the faults are made.
	Faults int
	// Dead is how long at least a backend stays away after its namespace was deleted.
	Dead time.Duration
}

// Full is what the record is made with: eight minutes.
func Full() Settings {
	return Settings{
		Rounds: 3, WatchRounds: 2, LocalRounds: 3, Warm: 60 * time.Millisecond, Cell: 300 * time.Millisecond, Watch: 1500 * time.Millisecond,
		LocalCell: 300 * time.Millisecond, LocalWatch: time.Second, Many: 10_000, APIServices: []int{0, 100, 1000}, New: 10,
		Rest: 30 * time.Second, Idle: time.Minute, Faults: len(faults), Dead: 15 * time.Second,
	}
}

// Quick shows that everything works.
func Quick() Settings {
	return Settings{
		Rounds: 1, WatchRounds: 1, LocalRounds: 1, Warm: 20 * time.Millisecond, Cell: 50 * time.Millisecond, Watch: time.Second,
		LocalCell: 30 * time.Millisecond, LocalWatch: time.Second, Many: 200, APIServices: []int{0, 10}, New: 2,
		Rest: time.Second, Idle: 2 * time.Second, Faults: 1, Dead: time.Second,
	}
}

// fault is a way to die. stores: the backend keeps objects in namespaces, so that somebody who forgets them leaves them.
type fault struct {
	name   string
	stores bool
	begin  func(*faulty.Server) error
}

var faults = []fault{
	{"killed: connections are refused", false, func(s *faulty.Server) error { return s.SetFault(faulty.Refuse) }},
	{"stopped, as by SIGSTOP: connections stay", false, func(s *faulty.Server) error { return s.SetFault(faulty.Blackhole) }},
	{"accepts TCP, never answers TLS", false, func(s *faulty.Server) error {
		return errors.Join(s.SetFault(faulty.Refuse), s.SetFault(faulty.Blackhole))
	}},
	{"TLS and HTTP/2 alive, never replies", false, func(s *faulty.Server) error { return s.SetFault(faulty.Hang) }},
	{"killed, and it keeps objects", true, func(s *faulty.Server) error { return s.SetFault(faulty.Refuse) }},
}
