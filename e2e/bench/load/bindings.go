package load

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// BindingSettings are the settings for requests while bindings change.
type BindingSettings struct {
	Namespaces, Bindings int
	// Changes is the rate per second at which bindings get a new subject. Clients is the number of concurrent
	// requests.
	Changes, Clients int
	Rounds           int
	Cell             time.Duration
}

// BindingRow contains the results of a front door in one state. CPU is in microseconds per request, memory in bytes.
type BindingRow struct {
	State      string `json:"name"`
	Namespaces int    `json:"namespaces"`
	Bindings   int    `json:"bindings"`
	// Changed is the number of changes in all rounds.
	Changed   int            `json:"changed"`
	PerSecond measure.Spread `json:"requestsPerSecond"`
	CPU       measure.Spread `json:"cpuUS"`
	// Anyway is the CPU of the same state without requests, in milliseconds per second: idle, or writing and
	// distributing the changes. Own is the CPU per request without it, over all rounds, and OwnRatio is its ratio to
	// the first row.
	Anyway   float64 `json:"idleCPUms"`
	Own      float64 `json:"ownCPUus"`
	OwnRatio float64 `json:"ownCPUToFirst"`
	// Collecting is the part of the CPU per request that garbage collection used.
	Collecting measure.Spread `json:"collectingCPUus"`
	P99        measure.Spread `json:"p99ms"`
	Peak       float64        `json:"rssPeak"`
	// Kept is the heap after a garbage collection.
	Kept float64 `json:"heapKept"`

	stretches  []environment.Interval
	collecting []float64
}

const (
	writers  = 32
	writable = "view" // the ClusterRole of all bindings
)

// bound is a front door in a state.
type bound struct {
	*environment.Front
	row *BindingRow
	// changes is the number of bindings that change per second.
	changes int
}

// bindings compares a front door without bindings with one that has many, while none and while some of them change.
func (r *Report) bindings(ctx context.Context, y *environment.Environment, say func(string, ...any)) error {
	s := r.Settings.Bindings
	backend, err := y.Backend()
	if err != nil {
		return err
	}
	var fronts [2]*environment.Front
	for i := range fronts {
		if fronts[i], err = y.Front(fmt.Sprintf("front-%d", i)); err != nil {
			return err
		}
		if err := errors.Join(fronts[i].Grant(ctx), fronts[i].Register(ctx, 0, 1)); err != nil {
			return err
		}
	}
	say("%d namespaces and %d bindings are made", s.Namespaces, s.Bindings)
	if err := fill(ctx, fronts[1], s); err != nil {
		return err
	}
	states := []*bound{
		{Front: fronts[0], row: &BindingRow{State: "no bindings"}},
		{Front: fronts[1], row: &BindingRow{State: "no changes", Namespaces: s.Namespaces, Bindings: s.Bindings}},
		{Front: fronts[1], row: &BindingRow{State: fmt.Sprintf("%d changes/s", s.Changes), Namespaces: s.Namespaces, Bindings: s.Bindings}, changes: s.Changes},
	}
	say("both rest")
	if err := environment.Pause(ctx, r.Settings.Rest); err != nil {
		return err
	}
	changed := &changer{front: fronts[1], settings: s}
	for _, state := range states {
		r.Bindings = append(r.Bindings, state.row)
		say("without requests: %s", state.row.State)
		if err := state.alone(ctx, changed, 2*s.Cell); err != nil {
			return err
		}
	}
	for round := range s.Rounds {
		for turn := range states {
			k := turn
			if round%2 == 1 {
				k = len(states) - 1 - turn
			}
			say("round %d of %d: %s", round+1, s.Rounds, states[k].row.State)
			if err := states[k].requests(ctx, changed, backend, r.Settings.Warm, s); err != nil {
				return err
			}
		}
	}
	for _, front := range fronts {
		if err := front.Collect(ctx); err != nil {
			return err
		}
		memory, err := front.Memory(ctx)
		if err != nil {
			return err
		}
		for _, state := range states {
			if state.Front == front {
				state.row.Kept = memory.Kept
			}
		}
	}
	summarizeBindings(r.Bindings)
	return nil
}

// fill creates the namespaces, and the same number of bindings in each.
func fill(ctx context.Context, f *environment.Front, s BindingSettings) error {
	err := environment.Concurrency(ctx, writers, 0, s.Namespaces, func(ctx context.Context, n int) error {
		_, err := f.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(n)}}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("make namespaces: %w", err)
	}
	err = environment.Concurrency(ctx, writers, 0, s.Bindings, func(ctx context.Context, n int) error {
		b := binding(n, s, "user-"+strconv.Itoa(n))
		_, err := f.Client.RbacV1().RoleBindings(b.Namespace).Create(ctx, b, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("make bindings: %w", err)
	}
	return nil
}

func namespaceOf(n int) string { return fmt.Sprintf("team-%04d", n) }

// binding returns the numbered binding, which grants the role to a user.
func binding(n int, s BindingSettings, user string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "extra-" + strconv.Itoa(n), Namespace: namespaceOf(n % s.Namespaces)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: writable},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}
}

// changer gives one binding after the other a new subject.
type changer struct {
	front    *environment.Front
	settings BindingSettings
	n        int
}

// run changes perSecond bindings per second until ctx ends, and returns the number of changes. If it falls behind, it
// does not skip changes.
func (c *changer) run(ctx context.Context, perSecond int) (int, error) {
	changed := 0
	for began := time.Now(); ; changed++ {
		if environment.Pause(ctx, time.Until(began.Add(time.Second*time.Duration(changed)/time.Duration(perSecond)))) != nil {
			return changed, nil
		}
		b := binding(c.n%c.settings.Bindings, c.settings, "changed-"+strconv.Itoa(c.n))
		c.n++
		if _, err := c.front.Client.RbacV1().RoleBindings(b.Namespace).Update(ctx, b, metav1.UpdateOptions{}); err != nil {
			if ctx.Err() != nil {
				return changed, nil
			}
			return changed, fmt.Errorf("change a binding: %w", err)
		}
	}
}

// while runs do while bindings change at the rate of the state.
func (b *bound) while(ctx context.Context, c *changer, do func(ctx context.Context) error) error {
	if b.changes == 0 {
		return do(ctx)
	}
	both, ctx := errgroup.WithContext(ctx)
	changing, end := context.WithCancel(ctx)
	both.Go(func() error {
		n, err := c.run(changing, b.changes)
		b.row.Changed += n
		return err
	})
	both.Go(func() error {
		defer end()
		return do(ctx)
	})
	return both.Wait()
}

// alone measures the CPU of the state without requests.
func (b *bound) alone(ctx context.Context, c *changer, d time.Duration) error {
	return b.while(ctx, c, func(ctx context.Context) error {
		began := time.Now()
		cpu, err := used(b.Server, func() error { return environment.Pause(ctx, d) })
		b.row.Anyway = float64(cpu) / float64(time.Since(began)) * 1000
		return err
	})
}

func (b *bound) requests(ctx context.Context, c *changer, backend *environment.Server, warm time.Duration, s BindingSettings) error {
	ask := small
	ask.Path, ask.Clients = pathsOf(1)[0], s.Clients
	load, err := environment.NewLoadGenerator(b.Server, ask)
	if err != nil {
		return err
	}
	defer load.Leave()
	return b.while(ctx, c, func(ctx context.Context) error {
		before, err := b.Memory(ctx)
		if err != nil {
			return err
		}
		got, err := load.Measure(ctx, backend, warm, s.Cell)
		if err != nil {
			return err
		}
		after, err := b.Memory(ctx)
		b.row.stretches = append(b.row.stretches, got)
		// Both readings are outside the measured interval, and the collections of the warm-up are included. Therefore
		// the result is divided by the proportionally larger number of requests.
		all := float64(got.Requests) * (s.Cell + warm).Seconds() / s.Cell.Seconds()
		b.row.collecting = append(b.row.collecting, (after.Collecting-before.Collecting)*1e6/all)
		return err
	})
}

func summarizeBindings(rows []*BindingRow) {
	for _, row := range rows {
		row.CPU = measure.Of(row.stretches, func(s environment.Interval) float64 { return us(s.Server) })
		row.P99 = measure.Of(row.stretches, func(s environment.Interval) float64 { return ms(s.P99) })
		row.PerSecond = measure.Of(row.stretches, func(s environment.Interval) float64 { return s.PerSecond })
		row.Collecting = measure.SpreadOf(row.collecting)
		row.Own = ownCPU(row.stretches, row.Anyway/1000)
		row.OwnRatio = row.Own / rows[0].Own
		for _, s := range row.stretches {
			row.Peak = max(row.Peak, float64(s.Peak))
		}
	}
}
