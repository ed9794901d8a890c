package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"portico.dev/e2e/bench/measure"
	"portico.dev/e2e/bench/yard"
)

// Settings say how much there is, and how long it takes.
type Settings struct {
	// Many is how many objects the long lists have.
	Many   int
	Rounds int
	Cell   time.Duration
}

// Ordinary is what the record is made with: a minute and a half.
func Ordinary() Settings {
	return Settings{Many: 10_000, Rounds: 3, Cell: 300 * time.Millisecond}
}

// Quick shows that everything works.
func Quick() Settings { return Settings{Many: 500, Rounds: 1, Cell: 50 * time.Millisecond} }

// runner asks one layer after the other.
type runner struct {
	Settings
	child *yard.Child
	front *yard.Front
	made  int64
}

// Run makes the table. program is the aggregator that is measured; empty, it is built from the tree.
func Run(ctx context.Context, program string, s Settings, say func(string, ...any)) (*Report, error) {
	y, err := yard.New(program)
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

func (r *Report) run(ctx context.Context, y *yard.Yard, say func(string, ...any)) (err error) {
	say("building, starting and making %d objects three times", r.Settings.Many)
	dir, err := y.Dir("house")
	if err != nil {
		return err
	}
	a := &runner{Settings: r.Settings}
	if a.child, err = yard.Spawn(Role, told{dir, r.Settings.Many}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.child.Stop()) }()
	if a.front, err = y.Front("front-local"); err != nil {
		return err
	}
	if err := a.fill(ctx); err != nil {
		return err
	}
	ops := operations(r.Settings.Many)
	for _, o := range ops {
		r.Rows = append(r.Rows, Row{operation: o, costs: map[string][]float64{}})
	}
	for round := range r.Settings.Rounds {
		turns := slices.Clone(layers)
		if round%2 == 1 {
			slices.Reverse(turns)
		}
		for i, o := range ops {
			for _, l := range turns {
				say("round %d of %d: %s, %d at once, %s", round+1, r.Settings.Rounds, o.Name, o.Clients, l)
				if err := a.ask(ctx, l, o, &r.Rows[i]); err != nil {
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

func (a *runner) fill(ctx context.Context) error {
	for _, ns := range []string{fewIn, manyIn, madeIn} {
		if _, err := a.front.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for ns, count := range map[string]int{fewIn: few, manyIn: a.Many} {
		if err := yard.AtOnce(ctx, 32, 0, count, func(ctx context.Context, n int) error {
			_, err := a.front.Client.CoreV1().ConfigMaps(ns).Create(ctx, newConfigMap(ns, nameOf(n)), metav1.CreateOptions{})
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// ask adds what one round of an operation cost, in microseconds, to the row.
func (a *runner) ask(ctx context.Context, l string, o operation, row *Row) error {
	if l == doorLayer {
		return a.askDoor(ctx, o, row)
	}
	line, err := json.Marshal(question{Layer: l, Kind: o.kind, Clients: o.Clients, Accept: o.accept, For: a.Cell})
	if err != nil {
		return err
	}
	said, err := a.child.Ask(string(line))
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

// askDoor is the same by clients over HTTP/2, as an administrator.
func (a *runner) askDoor(ctx context.Context, o operation, row *Row) error {
	switch o.kind {
	case nothing:
		return nil // somebody serves whatever is asked there
	case watching:
		return a.watchDoor(ctx, row)
	}
	crowd, err := yard.NewCrowd(a.front.Server, a.request(o))
	if err != nil {
		return err
	}
	defer crowd.Leave()
	got, err := crowd.Measure(ctx, a.front.Server, a.Cell/5, a.Cell)
	if err != nil {
		return err
	}
	row.costs[doorLayer] = append(row.costs[doorLayer], float64(got.Server)/float64(time.Microsecond))
	row.perSecond = append(row.perSecond, got.PerSecond)
	row.p50 = append(row.p50, float64(got.P50)/float64(time.Millisecond))
	row.p99 = append(row.p99, float64(got.P99)/float64(time.Millisecond))
	return nil
}

func (a *runner) request(o operation) yard.Ask {
	ask := yard.Ask{Method: http.MethodGet, Token: yard.AdminToken, HTTP2: true, Clients: o.Clients, Accept: o.accept}
	switch o.kind {
	case creating:
		a.made += 1_000_000 // each crowd counts from one
		base := a.made
		ask.Method, ask.Path = http.MethodPost, collection(madeIn)
		ask.EachBody = func(n int64) string { return body(madeIn, nameOf(int(base+n))) }
	case getting:
		ask.Path = collection(fewIn) + "/" + first
	case gettingCached:
		ask.Path = collection(fewIn) + "/" + first + "?resourceVersion=0"
	case listing:
		ask.Path = collection(fewIn)
	case listingAll:
		ask.Path = collection(manyIn)
	}
	return ask
}

func (a *runner) watchDoor(ctx context.Context, row *Row) error {
	streams, err := yard.Open(ctx, a.front.Server, yard.Ask{
		Method: http.MethodGet, Path: collection(fewIn) + watchFirst, Token: yard.AdminToken, HTTP2: true,
	}, watchers)
	if err != nil {
		return err
	}
	defer streams.Close()
	touching, end := context.WithCancel(ctx)
	defer end()
	failed := make(chan error, 1)
	go func() {
		failed <- touchFor(touching, 2*a.Cell+time.Second, func(ctx context.Context, sent string) error {
			_, err := a.front.Client.CoreV1().ConfigMaps(fewIn).Patch(ctx, first, types.MergePatchType, []byte(annotation(sent)), metav1.PatchOptions{})
			return err
		})
	}()
	listened := max(a.Cell, 4*touchEvery)
	got, err := streams.Measure(ctx, a.front.Server, a.Cell/5, listened)
	end()
	if touched := <-failed; err == nil && touched != nil && touching.Err() == nil {
		err = touched
	}
	if err != nil {
		return err
	}
	row.costs[doorLayer] = append(row.costs[doorLayer], float64(got.Server)/float64(time.Microsecond))
	row.perSecond = append(row.perSecond, float64(got.Events)/listened.Seconds())
	row.p50 = append(row.p50, float64(got.P50)/float64(time.Millisecond))
	row.p99 = append(row.p99, float64(got.P99)/float64(time.Millisecond))
	return nil
}
