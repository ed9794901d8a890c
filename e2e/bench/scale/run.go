package scale

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// Settings are the sizes and durations of the benchmark.
type Settings struct {
	// APIServices contains the number of APIServices of each front door. The first one is the reference.
	APIServices []int
	// Bindings is the number of RoleBindings of an additional front door, which has as many APIServices as the first
	// one.
	Bindings int
	// Streams is the number of idle watches.
	Streams int
	Rounds  int
	// Cell is the duration of one turn of one front door. Rest is the idle time before the measurement of memory. It
	// is longer than a front door retains memory after a load. Idle is the duration of the measurement of idle CPU.
	Cell, Rest, Idle time.Duration
	// New is the number of APIServices that are created one by one, to measure the time to the first response.
	New int
}

// Full returns the settings of the published results. A run takes two minutes.
func Full() Settings {
	return Settings{APIServices: []int{10, 100, 1000}, Bindings: 50_000, Streams: 10_000, Rounds: 7, Cell: time.Second, Rest: 33 * time.Second, Idle: 12 * time.Second, New: 10}
}

// Quick returns settings that show only that the benchmark works.
func Quick() Settings {
	return Settings{APIServices: []int{3, 30}, Bindings: 500, Streams: 200, Rounds: 1, Cell: 100 * time.Millisecond, Rest: time.Second, Idle: time.Second, New: 2}
}

// registrars is the number of concurrent creations of bindings.
const registrars = 32

// subject is a front door with much state.
type subject struct {
	*environment.Front
	row       *Row
	stretches []environment.Interval
}

// Run measures all front doors. program is the aggregator to measure; if it is empty, the aggregator is built from
// the tree.
func Run(ctx context.Context, program string, s Settings, say func(string, ...any)) (*Report, error) {
	y, err := environment.New(program)
	if err != nil {
		return nil, err
	}
	r := &Report{Machine: measure.ThisMachine(), Settings: s}
	if err = r.run(ctx, y, s, say); err != nil {
		err = fmt.Errorf("%w\nthe front doors' log ends:\n%s", err, y.Log())
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
	all := r.subjects(s)
	for i, f := range all { // one after the other, because concurrent builds and starts would disturb each other
		if f.Front, err = y.Front(fmt.Sprintf("front-%d", i)); err != nil {
			return err
		}
	}
	filling, fill := errgroup.WithContext(ctx)
	filling.Go(func() error { // mostly waiting, which does not affect the memory of watches
		for _, f := range all {
			if err := f.fill(fill); err != nil {
				return err
			}
		}
		return nil
	})
	err = r.streams(ctx, y, backend, s, say)
	say("making APIServices and bindings")
	if err := errors.Join(err, filling.Wait()); err != nil {
		return err
	}
	say("all of them rest")
	if err := r.remember(ctx, all, s); err != nil {
		return err
	}
	say("all of them are left alone")
	if err := r.idle(ctx, all, s); err != nil {
		return err
	}
	if err := r.requests(ctx, all, backend, s, say); err != nil {
		return err
	}
	summarize(all)
	for _, f := range all {
		say("new APIServices beside %d", f.row.APIServices)
		if err := f.appear(ctx, s.New); err != nil {
			return err
		}
	}
	return nil
}

// subjects returns one front door for each number of APIServices, and one with the bindings.
func (r *Report) subjects(s Settings) []*subject {
	r.Rows = make([]Row, len(s.APIServices)+1)
	var all []*subject
	for i, count := range append(slices.Clone(s.APIServices), s.APIServices[0]) {
		r.Rows[i].APIServices = count
		all = append(all, &subject{row: &r.Rows[i]})
	}
	r.Rows[len(s.APIServices)].Bindings = s.Bindings
	return all
}

// fill creates the APIServices and bindings of a front door.
func (f *subject) fill(ctx context.Context) error {
	if err := f.Grant(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := f.Register(ctx, 0, f.row.APIServices); err != nil {
		return err
	}
	f.row.Registered = time.Since(began)
	began = time.Now()
	err := environment.Concurrency(ctx, registrars, 0, f.row.Bindings, f.bind)
	f.row.Bound = time.Since(began)
	return err
}

// bind grants the role to a different user for each n.
func (f *subject) bind(ctx context.Context, n int) error {
	name := "extra-" + strconv.Itoa(n)
	_, err := f.Client.RbacV1().RoleBindings(environment.Namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "user-" + strconv.Itoa(n)}},
	}, metav1.CreateOptions{})
	return err
}

// remember measures memory after an idle time.
func (r *Report) remember(ctx context.Context, all []*subject, s Settings) error {
	if err := environment.Pause(ctx, s.Rest); err != nil { // until the writes have been distributed and their garbage collected
		return err
	}
	for _, f := range all {
		if err := f.Collect(ctx); err != nil {
			return err
		}
		memory, err := f.Memory(ctx)
		if err != nil {
			return err
		}
		f.row.Kept = memory.Kept
		rss, err := measure.RSS(f.PID)
		if err != nil {
			return err
		}
		f.row.RSS = float64(rss)
		peak, err := measure.PeakRSS(f.PID)
		if err != nil {
			return err
		}
		f.row.PeakFilled = float64(peak)
	}
	return nil
}

// idle measures the CPU without requests.
func (r *Report) idle(ctx context.Context, all []*subject, s Settings) error {
	before := make([]time.Duration, len(all))
	var err error
	for i, f := range all {
		if before[i], err = measure.CPU(f.PID); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := environment.Pause(ctx, s.Idle); err != nil {
		return err
	}
	for i, f := range all {
		after, err := measure.CPU(f.PID)
		if err != nil {
			return err
		}
		f.row.IdleCPU = (after - before[i]).Seconds() * float64(time.Minute) / float64(time.Since(began))
	}
	return nil
}

// requests loads the front doors alternately with the same requests, for the group in the middle.
func (r *Report) requests(ctx context.Context, all []*subject, backend *environment.Server, s Settings, say func(string, ...any)) error {
	for round := range s.Rounds {
		turns := slices.Clone(all)
		if round%2 == 1 {
			slices.Reverse(turns)
		}
		for _, f := range turns {
			say("round %d of %d: GET 1 KB, %d APIServices, %d bindings", round+1, s.Rounds, f.row.APIServices, f.row.Bindings)
			got, err := f.load(ctx, backend, s)
			if err != nil {
				return err
			}
			f.stretches = append(f.stretches, got)
		}
	}
	return nil
}

func (f *subject) load(ctx context.Context, backend *environment.Server, s Settings) (environment.Interval, error) {
	generator, err := environment.NewLoadGenerator(f.Server, environment.Ask{
		Method: http.MethodGet, Path: environment.Path(f.row.APIServices/2) + "/small", Token: environment.UserToken, HTTP2: true, Clients: 32,
	})
	if err != nil {
		return environment.Interval{}, err
	}
	defer generator.Leave()
	return generator.Measure(ctx, backend, s.Cell/4, s.Cell)
}

// appear creates APIServices and measures the time until each responds.
func (f *subject) appear(ctx context.Context, count int) error {
	client, err := environment.NewClient(f.Server, true)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	var took []float64
	for n := range count {
		d, err := f.Appear(ctx, client, 90_000+n) // beyond the existing numbers
		if err != nil {
			return err
		}
		took = append(took, d.Seconds()*1000)
	}
	f.row.Appeared = measure.SpreadOf(took)
	return nil
}
