package incumbent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"portico.dev/e2e/bench/environment"
	"portico.dev/e2e/bench/measure"
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
