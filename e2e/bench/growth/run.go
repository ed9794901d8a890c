package growth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// Settings are the sizes and durations of the benchmark.
type Settings struct {
	// Counts contains the numbers of objects, in ascending order. The costs without objects are measured as well.
	Counts []int
	// Changes is the number of changes per measurement.
	Changes int
	// Rounds is the number of measurements of requests with each number of objects, Cell the duration of one.
	Rounds int
	Cell   time.Duration
	// Rest is the idle time before the measurement of memory, and RestEach the additional time for each object. Idle is
	// the duration of the measurement of idle CPU.
	Rest, RestEach, Idle time.Duration
}

// Full returns the settings of the published results. A run takes seventeen minutes.
func Full() Settings {
	return Settings{Counts: []int{10, 100, 1000, 10_000}, Changes: 20, Rounds: 5, Cell: time.Second, Rest: 12 * time.Second, RestEach: 2 * time.Millisecond, Idle: 10 * time.Second}
}

// Quick returns settings that show only that the benchmark works.
func Quick() Settings {
	return Settings{Counts: []int{3, 30}, Changes: 2, Rounds: 1, Cell: 100 * time.Millisecond, Rest: 500 * time.Millisecond, Idle: 500 * time.Millisecond}
}

const (
	// leastMemory is the memory that all processes need, with a reserve.
	leastMemory = 4 << 30
	// writers is the number of concurrent writes while objects are created.
	writers = 16
)

// Run measures all kinds, one after the other. program is the aggregator to measure; if it is empty, the aggregator
// is built from the tree.
func Run(ctx context.Context, program string, s Settings, say func(string, ...any)) (r *Report, err error) {
	most := s.Counts[len(s.Counts)-1]
	if err := errors.Join(measure.CheckMemory(leastMemory), measure.CheckDescriptors(most+1000)); err != nil {
		return nil, err
	}
	r = &Report{Machine: measure.ThisMachine(), Settings: s}
	say("building")
	y, err := environment.New(program) // only for the program
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, y.Close()) }()
	if program, err = y.Aggregator(); err != nil {
		return nil, err
	}
	for _, k := range kinds() {
		rows, err := grow(ctx, program, k, s, func(format string, args ...any) { say(k.name()+": "+format, args...) })
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k.name(), err)
		}
		r.Kinds = append(r.Kinds, Growth{Kind: k.name(), Change: k.change(), Rows: rows, Fits: fits(rows)})
	}
	r.Took = time.Since(r.Machine.Began)
	return r, nil
}

// kind is a kind of object, and one change of it.
type kind interface {
	name() string
	// change describes what perform does.
	change() string
	// fill creates the objects from <= n < before. The front door has the previous ones.
	fill(ctx context.Context, f *environment.Front, from, before int) error
	// perform makes a change, waits for its effect and returns the elapsed time. It leaves the number of objects as it
	// was.
	perform(ctx context.Context, f *environment.Front, n int) (time.Duration, error)
	// end releases what belongs to this process.
	end()
}

// grow measures one front door with increasing numbers of objects of a kind.
func grow(ctx context.Context, program string, k kind, s Settings, say func(string, ...any)) (rows []Row, err error) {
	y, err := environment.New(program)
	if err != nil {
		return nil, err
	}
	defer func() {
		k.end()
		if err != nil {
			err = fmt.Errorf("%w\nthe front door's log ends:\n%s", err, y.Log())
		}
		if ended := y.Close(); err == nil {
			err = ended
		}
	}()
	say("starting")
	backend, err := y.Backend()
	if err != nil {
		return nil, err
	}
	front, err := y.Front("front")
	if err != nil {
		return nil, err
	}
	// The requests are for the first APIService, which exists from the beginning.
	if err := errors.Join(front.Grant(ctx), front.Register(ctx, 0, 1)); err != nil {
		return nil, err
	}
	had := 0
	for _, count := range append([]int{0}, s.Counts...) {
		say("%d are created", count)
		began := time.Now()
		if err := k.fill(ctx, front, had, count); err != nil {
			return nil, fmt.Errorf("create %d: %w", count, err)
		}
		row := Row{Count: count, Filled: float64(time.Since(began)) / float64(time.Millisecond) / float64(max(1, count-had))}
		had = count
		if err := row.measure(ctx, k, front, backend, s, say); err != nil {
			return nil, fmt.Errorf("with %d: %w", count, err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// measure fills the row with the costs of the front door in its state.
func (r *Row) measure(ctx context.Context, k kind, f *environment.Front, backend *environment.Server, s Settings, say func(string, ...any)) error {
	say("%d rest", r.Count)
	if err := environment.Pause(ctx, s.Rest+time.Duration(r.Count)*s.RestEach); err != nil { // until controllers have handled the new objects
		return err
	}
	if err := f.Collect(ctx); err != nil {
		return err
	}
	memory, err := f.Memory(ctx)
	if err != nil {
		return err
	}
	r.Kept = memory.Kept
	idle, err := used(f.Server, func() error { return environment.Pause(ctx, s.Idle) })
	if err != nil {
		return err
	}
	r.Idle = idle.Seconds() * float64(time.Minute) / float64(s.Idle)
	say("changes beside %d", r.Count)
	var took []float64
	began := time.Now()
	cpu, err := used(f.Server, func() error {
		for n := range s.Changes {
			d, err := k.perform(ctx, f, n)
			if err != nil {
				return fmt.Errorf("%s: %w", k.change(), err)
			}
			took = append(took, float64(d)/float64(time.Millisecond))
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.Took = measure.SpreadOf(took)
	r.ChangeCPU = r.own(cpu, time.Since(began), s.Changes) / 1000
	return r.requests(ctx, f, backend, s, say)
}

// own returns the CPU of one of several operations in microseconds, without the idle CPU in the same time.
func (r *Row) own(cpu, lasted time.Duration, operations int) float64 {
	return (cpu.Seconds() - r.Idle/time.Minute.Seconds()*lasted.Seconds()) * 1e6 / float64(operations)
}

// requests measures GETs of 1 KB through the first APIService, by a user that a RoleBinding authorizes.
func (r *Row) requests(ctx context.Context, f *environment.Front, backend *environment.Server, s Settings, say func(string, ...any)) error {
	generator, err := environment.NewLoadGenerator(f.Server, environment.Ask{
		Method: http.MethodGet, Path: environment.Path(0) + "/small", Token: environment.UserToken, HTTP2: true, Clients: 32,
	})
	if err != nil {
		return err
	}
	defer generator.Leave()
	var cpu []float64
	for round := range s.Rounds {
		say("requests beside %d, %d of %d", r.Count, round+1, s.Rounds)
		got, err := generator.Measure(ctx, backend, s.Cell/4, s.Cell)
		if err != nil {
			return err
		}
		lasted := time.Duration(float64(got.Requests) / got.PerSecond * float64(time.Second))
		cpu = append(cpu, r.own(got.Server*time.Duration(got.Requests), lasted, got.Requests))
	}
	r.Request = measure.SpreadOf(cpu)
	return nil
}

// used returns the CPU time that a server uses while do runs.
func used(s *environment.Server, do func() error) (time.Duration, error) {
	before, err := measure.CPU(s.PID)
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := measure.CPU(s.PID)
	return after - before, err
}
