package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// Settings are the sizes and durations of the benchmark.
type Settings struct {
	// Many is the number of objects in the long lists.
	Many   int
	Rounds int
	Cell   time.Duration
}

// Full returns the settings of the published results. A run takes a minute and a half.
func Full() Settings {
	return Settings{Many: 10_000, Rounds: 3, Cell: 300 * time.Millisecond}
}

// Quick returns settings that show only that the benchmark works.
func Quick() Settings { return Settings{Many: 500, Rounds: 1, Cell: 50 * time.Millisecond} }

// runner runs the operations on one layer after the other.
type runner struct {
	Settings
	child *environment.Child
	front *FrontDoor
}

// Run measures all operations. program is the aggregator to measure; if it is empty, the aggregator is built from the
// tree.
func Run(ctx context.Context, program string, s Settings, say func(string, ...any)) (*Report, error) {
	y, err := environment.New(program)
	if err != nil {
		return nil, err
	}
	r := &Report{Machine: measure.ThisMachine(), Settings: s}
	if err = r.run(ctx, y, say); err != nil {
		err = fmt.Errorf("%w\nthe front door's log ends:\n%s", err, y.Log())
	}
	if ended := y.Close(); err == nil {
		err = ended
	}
	r.Took = time.Since(r.Machine.Began)
	return r, err
}

func (r *Report) run(ctx context.Context, y *environment.Environment, say func(string, ...any)) (err error) {
	say("building, starting and making %d objects three times", r.Settings.Many)
	dir, err := y.Dir("chain")
	if err != nil {
		return err
	}
	a := &runner{Settings: r.Settings}
	if a.child, err = environment.Spawn(Role, told{dir, r.Settings.Many}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.child.Stop()) }()
	front, err := y.Front("front-local")
	if err != nil {
		return err
	}
	a.front = &FrontDoor{FrontDoor: front.FrontDoor, Many: r.Settings.Many, Cell: r.Settings.Cell}
	if err := a.front.Fill(ctx); err != nil {
		return err
	}
	ops := operations(r.Settings.Many)
	for _, o := range ops {
		r.Rows = append(r.Rows, Row{Operation: o, costs: map[string][]float64{}})
	}
	for round := range r.Settings.Rounds {
		turns := slices.Clone(layers)
		if round%2 == 1 {
			slices.Reverse(turns)
		}
		for i, o := range ops {
			for _, l := range turns {
				say("round %d of %d: %s, %d at once, %s", round+1, r.Settings.Rounds, o.Name, o.Clients, l)
				if err := a.measure(ctx, l, o, &r.Rows[i]); err != nil {
					return fmt.Errorf("%s, %d at once, %s: %w", o.Name, o.Clients, l, err)
				}
			}
		}
	}
	for i := range r.Rows {
		r.Rows[i].summarize()
	}
	return nil
}

// measure adds the cost of one round of an operation, in microseconds, to the row.
func (a *runner) measure(ctx context.Context, l string, o Operation, row *Row) error {
	if l == frontDoorLayer {
		return a.askFrontDoor(ctx, o, row)
	}
	line, err := json.Marshal(question{Layer: l, Kind: o.kind, Clients: o.Clients, Accept: o.accept, For: a.Cell})
	if err != nil {
		return err
	}
	said, err := a.child.Query(string(line))
	if err != nil {
		return err
	}
	var got result
	if err := json.Unmarshal([]byte(said), &got); err != nil {
		return fmt.Errorf("%q: %w", said, err)
	}
	if got.Err != "" {
		return errors.New(got.Err)
	}
	row.costs[l] = append(row.costs[l], float64(got.CPU)/float64(time.Microsecond)/float64(got.N))
	return nil
}

func (a *runner) askFrontDoor(ctx context.Context, o Operation, row *Row) error {
	if o.kind == nothing {
		return nil // a front door always executes the request
	}
	got, err := a.front.Measure(ctx, o, a.front.Server)
	if err != nil {
		return err
	}
	row.costs[frontDoorLayer] = append(row.costs[frontDoorLayer], got.CPU)
	row.perSecond, row.p50, row.p99 = append(row.perSecond, got.PerSecond), append(row.p50, got.P50), append(row.p99, got.P99)
	row.peak = append(row.peak, float64(got.Peak)/(1<<20))
	return nil
}
