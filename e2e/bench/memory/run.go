package memory

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"portico.dev/e2e/bench/local"
	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// groupVariable is the environment variable with the directory of a control group, version 1 or 2, in which the
// benchmark may create others (usually as root). Without it, the limits are passed as --memory-limit, which the
// kernel does not enforce.
const groupVariable = "PORTICO_BENCH_MEMORY_CGROUP"

// Settings are the sizes and durations of the benchmark.
type Settings struct {
	// GOGC contains the values of GOGC for front doors that do not tune it. One front door tunes it.
	GOGC []string
	// LimitsMiB contains memory limits. Each applies to one additional front door.
	LimitsMiB []int
	// Many is the number of objects in the long lists.
	Many   int
	Rounds int
	// Warm and Cell are the durations of one turn of one server. They are longer than the front door needs to detect
	// a load.
	Warm, Cell time.Duration
}

// Full returns the settings of the published results. A run takes four minutes.
func Full() Settings {
	return Settings{GOGC: []string{"100", "200", "400", "800"}, LimitsMiB: []int{512, 256}, Many: 10_000, Rounds: 2, Warm: 1200 * time.Millisecond, Cell: 1500 * time.Millisecond}
}

// Quick returns settings that show only that the benchmark works.
func Quick() Settings {
	return Settings{GOGC: []string{"100"}, LimitsMiB: []int{512}, Many: 200, Rounds: 1, Warm: 20 * time.Millisecond, Cell: 50 * time.Millisecond}
}

// subject is one server with all its processes.
type subject struct {
	*environment.FrontDoor
	beside []*environment.Server
	row    *Row
	// limited is true for a front door that may refuse ordinary users, but must not exit.
	limited bool
}

// Run measures all servers. program is the aggregator to measure; if it is empty, the aggregator is built from the
// tree. theirs may be empty.
func Run(ctx context.Context, program string, theirs environment.Kubernetes, s Settings, say func(string, ...any)) (*Report, error) {
	y, err := environment.New(program)
	if err != nil {
		return nil, err
	}
	r := &Report{Machine: measure.ThisMachine(), Settings: s}
	var groups []string
	if err = r.run(ctx, y, theirs, &groups, say); err != nil {
		err = fmt.Errorf("%w\nthe front doors' log ends:\n%s", err, y.Log())
	}
	if ended := y.Close(); err == nil {
		err = ended
	}
	for _, group := range groups { // a group can be removed once its process has ended
		err = errors.Join(err, os.Remove(group))
	}
	r.Took = time.Since(r.Machine.Began)
	return r, err
}

func (r *Report) run(ctx context.Context, y *environment.Environment, theirs environment.Kubernetes, groups *[]string, say func(string, ...any)) error {
	say("building and starting")
	if _, err := y.Backend(); err != nil {
		return err
	}
	all, err := r.subjects(ctx, y, theirs, groups)
	if err != nil {
		return err
	}
	for _, k := range all {
		say("%s: making %d objects", k.row.Who, r.Settings.Many)
		if err := k.fill(ctx, r.Settings); err != nil {
			return fmt.Errorf("%s: %w", k.row.Who, err)
		}
	}
	loads := loads(r.Settings.Many)
	for _, l := range loads {
		r.Loads = append(r.Loads, l.Name)
	}
	for round := range r.Settings.Rounds {
		for i, l := range loads {
			turns := slices.Clone(all)
			if round%2 == 1 {
				slices.Reverse(turns)
			}
			for _, k := range turns {
				say("round %d of %d: %s, %s", round+1, r.Settings.Rounds, l.Name, k.row.Who)
				got, err := k.measure(ctx, l.Ask, r.Settings)
				switch {
				case err != nil && k.limited && ctx.Err() == nil && k.Alive():
					got = Cell{Refused: true}
				case err != nil:
					return fmt.Errorf("%s: %s: %w", k.row.Who, l.Name, err)
				}
				k.row.cells[i] = append(k.row.cells[i], got)
			}
		}
	}
	for _, k := range all {
		for _, cells := range k.row.cells {
			k.row.Cells = append(k.row.Cells, summarize(cells))
		}
	}
	return nil
}

// load is one kind of request.
type load struct {
	Name string
	environment.Ask
}

func loads(many int) []load {
	list := environment.Ask{Method: http.MethodGet, Path: local.ManyPath, Token: environment.AdminToken, HTTP2: true, Clients: 1}
	concurrent := list
	concurrent.Clients = 8
	return []load{
		{"proxied GET of 1 KB, 32 at once", environment.Ask{Method: http.MethodGet, Path: environment.Path(0) + "/small", Token: environment.UserToken, HTTP2: true, Clients: 32}},
		{"local GET, 32 at once", environment.Ask{Method: http.MethodGet, Path: local.ManyPath + "/object-0", Token: environment.AdminToken, HTTP2: true, Clients: 32}},
		{fmt.Sprintf("list of %d, 1 at once", many), list},
		{fmt.Sprintf("list of %d, 8 at once", many), concurrent},
	}
}

// subjects starts all servers, one after the other.
func (r *Report) subjects(ctx context.Context, y *environment.Environment, theirs environment.Kubernetes, groups *[]string) ([]*subject, error) {
	var all []*subject
	front := func(who string, p environment.Place, flags ...string) error {
		f, err := y.FrontIn(p, "front-"+strconv.Itoa(len(all)), flags...)
		if err != nil {
			return err
		}
		all = append(all, &subject{FrontDoor: f.FrontDoor, row: &Row{Who: who}})
		return nil
	}
	if err := front("Portico", environment.Place{}); err != nil {
		return nil, err
	}
	for _, gogc := range r.Settings.GOGC {
		if err := front("Portico, GOGC="+gogc, environment.Place{Env: []string{"GOGC=" + gogc}}); err != nil {
			return nil, err
		}
	}
	for _, mib := range r.Settings.LimitsMiB {
		parent := os.Getenv(groupVariable)
		if parent == "" {
			if err := front(fmt.Sprintf("Portico, --memory-limit=%dMi", mib), environment.Place{}, fmt.Sprintf("--memory-limit=%dMi", mib)); err != nil {
				return nil, err
			}
			all[len(all)-1].limited = true
			continue
		}
		group, err := newGroup(parent, mib)
		if err != nil {
			return nil, err
		}
		*groups = append(*groups, group)
		within := environment.Place{Within: []string{"/bin/sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, group}}
		if err := front(fmt.Sprintf("Portico, in a control group with %d MiB", mib), within); err != nil {
			return nil, err
		}
		all[len(all)-1].limited = true
	}
	if theirs != (environment.Kubernetes{}) {
		var err error
		if r.Version, err = theirs.Version(); err != nil {
			return nil, err
		}
		other, _, err := y.Incumbent(ctx, "theirs", theirs)
		if err != nil {
			return nil, err
		}
		all = append(all, &subject{FrontDoor: other.FrontDoor, beside: []*environment.Server{other.Etcd}, row: &Row{Who: "kube-apiserver and its etcd"}})
	}
	for _, k := range all {
		k.row.cells = make([][]Cell, len(loads(r.Settings.Many)))
		r.Rows = append(r.Rows, k.row)
	}
	return all, nil
}

// newGroup creates a control group with a limit.
func newGroup(parent string, mib int) (string, error) {
	group, err := os.MkdirTemp(parent, "portico-bench-")
	if err != nil {
		return "", err
	}
	setting := filepath.Join(group, "memory.max")
	if _, err := os.Stat(setting); err != nil {
		setting = filepath.Join(group, "memory.limit_in_bytes")
	}
	if err := os.WriteFile(setting, []byte(strconv.Itoa(mib<<20)), 0o644); err != nil {
		return "", errors.Join(err, os.Remove(group))
	}
	return group, nil
}

func (k *subject) fill(ctx context.Context, s Settings) error {
	if err := k.Grant(ctx); err != nil {
		return err
	}
	if err := k.Register(ctx, 0, 1); err != nil {
		return err
	}
	objects := &local.FrontDoor{FrontDoor: k.FrontDoor, Many: s.Many}
	return objects.Fill(ctx)
}

// measure loads the server for one turn. CPU and memory include all its processes.
func (k *subject) measure(ctx context.Context, a environment.Ask, s Settings) (c Cell, err error) {
	processes := append([]*environment.Server{k.Server}, k.beside...)
	for _, p := range processes {
		if err := measure.ResetPeakRSS(p.PID); err != nil {
			return c, err
		}
	}
	generator, err := environment.NewLoadGenerator(k.Server, a)
	if err != nil {
		return c, err
	}
	defer generator.Leave()
	if _, err := generator.Run(ctx, s.Warm); err != nil {
		return c, err
	}
	cpu := func() (total float64, err error) {
		for _, p := range processes {
			used, err := measure.CPU(p.PID)
			if err != nil {
				return 0, err
			}
			total += float64(used) / float64(time.Microsecond)
		}
		return total, nil
	}
	before, err := cpu()
	if err != nil {
		return c, err
	}
	got, err := generator.Run(ctx, s.Cell)
	if err != nil {
		return c, err
	}
	after, err := cpu()
	if err != nil {
		return c, err
	}
	c = Cell{CPU: (after - before) / float64(got.Requests), PerSecond: got.PerSecond, P99: float64(got.P99) / float64(time.Millisecond)}
	for _, p := range processes {
		peak, err := measure.PeakRSS(p.PID)
		if err != nil {
			return c, err
		}
		c.Peak += float64(peak)
	}
	return c, nil
}
