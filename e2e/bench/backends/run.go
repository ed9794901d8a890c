package backends

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// Settings are the sizes and durations of the benchmark.
type Settings struct {
	// APIServices is the number of registrations, PerSecond their rate.
	APIServices, PerSecond int
	// Before is the idle time before the registrations. Afterwards, the server is idle for Minutes times Minute.
	// Sample is the interval between two measurements of memory.
	Before, Minute, Sample time.Duration
	Minutes                int
}

// Full returns the settings of the published results. A run takes two minutes and three quarters.
func Full() Settings {
	return Settings{APIServices: 1000, PerSecond: 100, Before: 20 * time.Second, Minutes: 2, Minute: time.Minute, Sample: time.Second}
}

// Quick returns settings that show only that the benchmark works.
func Quick() Settings {
	return Settings{APIServices: 20, PerSecond: 100, Before: time.Second, Minutes: 2, Minute: time.Second, Sample: 100 * time.Millisecond}
}

// side is one server with its processes.
type side struct {
	*environment.FrontDoor
	front *environment.Front // nil if it is not Portico
	parts []*environment.Server
	row   *Row
}

// Run measures the servers. program is the aggregator to measure; if it is empty, the aggregator is built from the
// tree. theirs may be empty.
func Run(ctx context.Context, program string, theirs environment.Kubernetes, s Settings, say func(string, ...any)) (*Report, error) {
	y, err := environment.New(program)
	if err != nil {
		return nil, err
	}
	r := &Report{Machine: measure.ThisMachine(), Settings: s}
	if err = r.run(ctx, y, theirs, say); err != nil {
		err = fmt.Errorf("%w\nthe front doors' log ends:\n%s", err, y.Log())
	}
	if ended := y.Close(); err == nil {
		err = ended
	}
	r.Took = time.Since(r.Machine.Began)
	return r, err
}

func (r *Report) run(ctx context.Context, y *environment.Environment, theirs environment.Kubernetes, say func(string, ...any)) error {
	say("building and starting")
	front, err := y.Front("front")
	if err != nil {
		return err
	}
	sides := []*side{{FrontDoor: front.FrontDoor, front: front, parts: []*environment.Server{front.Server}, row: &Row{Who: "Portico"}}}
	if theirs != (environment.Kubernetes{}) {
		if r.Version, err = theirs.Version(); err != nil {
			return err
		}
		other, _, err := y.Incumbent(ctx, "theirs", theirs)
		if err != nil {
			return err
		}
		if err := other.Manage(); err != nil {
			return err
		}
		sides = append(sides, &side{
			FrontDoor: other.FrontDoor, parts: []*environment.Server{other.Server, other.Manager, other.Etcd},
			row: &Row{Who: "kube-apiserver with its controllers and etcd"},
		})
	}
	both, ctx := errgroup.WithContext(ctx)
	for _, d := range sides {
		r.Rows = append(r.Rows, d.row)
		both.Go(func() error {
			if err := d.measure(ctx, y, r.Settings, say); err != nil {
				return fmt.Errorf("%s: %w", d.row.Who, err)
			}
			return nil
		})
	}
	return both.Wait()
}

// measure registers a separate set of backends and measures the server while it is idle.
func (d *side) measure(ctx context.Context, y *environment.Environment, s Settings, say func(string, ...any)) error {
	if err := d.Grant(ctx); err != nil {
		return err
	}
	_, own, err := y.OwnBackends(s.APIServices)
	if err != nil {
		return err
	}
	say("%s is left alone before anything is registered", d.row.Who)
	if err := environment.Pause(ctx, s.Before); err != nil {
		return err
	}
	if d.row.Before, err = d.sum(measure.RSS); err != nil {
		return err
	}
	say("%d APIServices are registered, %s", s.APIServices, d.row.Who)
	began := time.Now()
	d.row.RegisteringCPU, err = d.used(func() error { return d.RegisterOwn(ctx, own, s.PerSecond) })
	if err != nil {
		return err
	}
	d.row.Registered = time.Since(began)
	for n := range s.Minutes {
		say("minute %d of %d, %s", n+1, s.Minutes, d.row.Who)
		var memory measure.Spread
		cpu, err := d.used(func() (err error) {
			memory, err = d.rest(ctx, s)
			return err
		})
		if err != nil {
			return err
		}
		d.row.Minutes = append(d.row.Minutes, Minute{RSS: memory, CPU: cpu * time.Minute.Seconds() / s.Minute.Seconds()})
	}
	if d.row.Peak, err = d.sum(measure.PeakRSS); err != nil || d.front == nil {
		return err
	}
	if err := d.front.Collect(ctx); err != nil {
		return err
	}
	memory, err := d.front.Memory(ctx)
	d.row.Kept, d.row.Goroutines = memory.Kept, memory.Goroutines
	return err
}

// rest samples the memory for one Minute.
func (d *side) rest(ctx context.Context, s Settings) (measure.Spread, error) {
	var looks []float64
	for end := time.Now().Add(s.Minute); time.Now().Before(end); {
		rss, err := d.sum(measure.RSS)
		if err != nil {
			return measure.Spread{}, err
		}
		looks = append(looks, rss)
		if err := environment.Pause(ctx, min(s.Sample, time.Until(end))); err != nil {
			return measure.Spread{}, err
		}
	}
	return measure.SpreadOf(looks), nil
}

// used returns the CPU seconds that all processes of the server use while do runs.
func (d *side) used(do func() error) (float64, error) {
	cpu := func(pid int) (int64, error) {
		t, err := measure.CPU(pid)
		return int64(t), err
	}
	before, err := d.sum(cpu)
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := d.sum(cpu)
	return time.Duration(after - before).Seconds(), err
}

func (d *side) sum(of func(pid int) (int64, error)) (float64, error) {
	total := int64(0)
	for _, p := range d.parts {
		n, err := of(p.PID)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return float64(total), nil
}
