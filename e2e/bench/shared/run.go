package shared

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
	"portico.dev/internal/routes/v1alpha1"
)

// Settings are the sizes and durations of the benchmark.
type Settings struct {
	Rounds     int           `json:"rounds"`
	Warm       time.Duration `json:"-"`
	Cell       time.Duration `json:"cellNanoseconds"`
	Settle     time.Duration `json:"-"`
	Pollers    int           `json:"pollers"`
	Every      time.Duration `json:"everyNanoseconds"` // between two requests of one poller
	PollFor    time.Duration `json:"pollNanoseconds"`
	PollRounds int           `json:"pollRounds"`
	// Streams is the number of watches with events, IdleStreams the number without events.
	Streams     int           `json:"streams"`
	Watch       time.Duration `json:"watchNanoseconds"`
	WatchRounds int           `json:"watchRounds"`
	IdleStreams int           `json:"idleStreams"`
	// Rest is the idle time of a front door before its memory is measured.
	Rest time.Duration `json:"-"`
	// MaxAge of the APIRoute and of nginx.
	MaxAge time.Duration `json:"maxAgeNanoseconds"`
}

// Full returns the settings of the published results. A run takes four minutes.
func Full() Settings {
	return Settings{
		Rounds: 5, Warm: 100 * time.Millisecond, Cell: 500 * time.Millisecond, Settle: 3 * time.Second,
		Pollers: 40, Every: time.Second, PollFor: 12 * time.Second, PollRounds: 2, MaxAge: 2 * time.Second,
		Streams: 1000, Watch: 4 * time.Second, WatchRounds: 3, IdleStreams: 10_000, Rest: 20 * time.Second,
	}
}

// Quick returns settings that show only that the benchmark works.
func Quick() Settings {
	return Settings{
		Rounds: 1, Warm: 20 * time.Millisecond, Cell: 100 * time.Millisecond,
		Pollers: 10, Every: 200 * time.Millisecond, PollFor: 3 * time.Second, PollRounds: 1, MaxAge: time.Second,
		Streams: 100, Watch: 2 * time.Second, WatchRounds: 1, IdleStreams: 300, Rest: time.Second,
	}
}

// subject is a server, a user and a group.
type subject struct {
	name   string
	server *environment.Server
	token  string
	group  int
}

// The names of the servers.
const (
	bare       = "bare ReverseProxy"
	nginx      = "nginx"
	nginxCache = "nginx with its cache"
	alone      = "front door, each read sent"
	same       = "front door, sharedReads of the same caller"
	all        = "front door, sharedReads of all callers"
	floor      = "floor: our HTTP, an object in memory"
	library    = "floor: net/http, an object in memory"
)

// The groups of the front door of OpenFront, which share the same backend: without shared reads, and with shared reads of the same
// caller and of all callers, the latter with shared watches.
const (
	GroupAlone = iota
	GroupSame
	GroupAll
	groups
)

// Run measures all servers. program is the aggregator to measure; if it is empty, the aggregator is built from the
// tree.
func Run(ctx context.Context, program string, s Settings, say func(string, ...any)) (*Report, error) {
	y, err := environment.New(program)
	if err != nil {
		return nil, err
	}
	r := &Report{Machine: measure.ThisMachine(), Settings: s}
	if err = r.run(ctx, y, s, say); err != nil {
		err = fmt.Errorf("%w\nthe front door's log ends:\n%s", err, y.Log())
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
	subjects, err := start(ctx, y, s)
	if err != nil {
		return err
	}
	if err := environment.Pause(ctx, s.Settle); err != nil {
		return err
	}
	if err := r.requests(ctx, subjects, backend, s, say); err != nil {
		return err
	}
	if err := r.pollers(ctx, subjects, backend, s, say); err != nil {
		return err
	}
	if err := r.watches(ctx, subjects, backend, s, say); err != nil {
		return err
	}
	return r.idleWatches(ctx, y, s, say)
}

// start starts the servers. The bare proxy is the first.
func start(ctx context.Context, y *environment.Environment, s Settings) ([]subject, error) {
	proxy, err := y.Bare(true)
	if err != nil {
		return nil, err
	}
	subjects := []subject{{name: bare, server: proxy}}
	if environment.Nginx() != "" {
		for name, maxAge := range map[string]time.Duration{nginx: 0, nginxCache: s.MaxAge} {
			server, err := y.StartNginx(name, maxAge)
			if err != nil {
				return nil, err
			}
			subjects = append(subjects, subject{name: name, server: server})
		}
		slices.SortFunc(subjects[1:], func(a, b subject) int { return len(a.name) - len(b.name) })
	}
	program, err := y.Aggregator()
	if err != nil {
		return nil, err
	}
	front, err := OpenFront(ctx, y, program, "front", s.MaxAge)
	if err != nil {
		return nil, err
	}
	user := func(name string, group int) subject { return subject{name, front.Server, environment.UserToken, group} }
	subjects = append(subjects, user(alone, GroupAlone), user(same, GroupSame), user(all, GroupAll))
	ours, err := y.Floor()
	if err != nil {
		return nil, err
	}
	theirs, err := y.LibraryFloor()
	if err != nil {
		return nil, err
	}
	return append(subjects, subject{name: floor, server: ours}, subject{name: library, server: theirs}), nil
}

// isFloor reports whether a subject is measured with requests only.
func isFloor(w subject) bool { return w.name == floor || w.name == library }

// OpenFront starts a front door with the groups. program is a build of the aggregator.
func OpenFront(ctx context.Context, y *environment.Environment, program, name string, maxAge time.Duration, flags ...string) (*environment.Front, error) {
	front, err := y.FrontOf(program, name, flags...)
	if err != nil {
		return nil, err
	}
	if err := front.Grant(ctx); err != nil {
		return nil, err
	}
	if err := front.Register(ctx, 0, groups); err != nil {
		return nil, err
	}
	for group, callers := range map[int]v1alpha1.Callers{GroupSame: v1alpha1.CallersSame, GroupAll: v1alpha1.CallersAll} {
		if err := share(ctx, front.Client, group, callers, maxAge); err != nil {
			return nil, err
		}
	}
	return front, nil
}

// share creates an APIRoute with shared reads for a group.
func share(ctx context.Context, client kubernetes.Interface, group int, callers v1alpha1.Callers, maxAge time.Duration) error {
	route := &v1alpha1.APIRoute{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "APIRoute"},
		ObjectMeta: metav1.ObjectMeta{Name: "v1." + environment.GroupName(group)},
		Spec: v1alpha1.APIRouteSpec{
			Backends: []v1alpha1.APIRouteBackend{{Name: "backend"}},
			Rules: []v1alpha1.APIRouteRule{{
				Name: "reads", Matches: []v1alpha1.APIRouteMatch{{Access: v1alpha1.AccessRead}},
				BackendRefs: []v1alpha1.BackendRef{{Name: "backend"}},
				SharedReads: &v1alpha1.SharedReads{MaxAge: metav1.Duration{Duration: maxAge}, Callers: callers, Watches: callers == v1alpha1.CallersAll},
			}},
		},
	}
	rest := client.Discovery().RESTClient()
	body, err := json.Marshal(route)
	if err != nil {
		return err
	}
	path := "/apis/" + v1alpha1.GroupVersion.String() + "/apiroutes"
	if err := rest.Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error(); err != nil {
		return fmt.Errorf("create the APIRoute: %w", err)
	}
	return available(ctx, rest, path+"/"+route.Name)
}

// available waits until an APIRoute is in effect.
func available(ctx context.Context, client rest.Interface, path string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("%s is not available after a minute", path))
	defer cancel()
	for {
		data, err := client.Get().AbsPath(path).DoRaw(ctx)
		if err != nil {
			return err
		}
		var route v1alpha1.APIRoute
		if err := json.Unmarshal(data, &route); err != nil {
			return err
		}
		if meta.IsStatusConditionTrue(route.Status.Conditions, v1alpha1.ConditionAvailable) {
			return nil
		}
		if environment.Pause(ctx, 50*time.Millisecond) != nil {
			return context.Cause(ctx)
		}
	}
}

// requests runs the cells in rounds. Every other round has the opposite order of servers.
func (r *Report) requests(ctx context.Context, subjects []subject, backend *environment.Server, s Settings, say func(string, ...any)) error {
	for _, c := range cells() {
		for _, w := range subjects {
			r.Rows = append(r.Rows, Row{Cell: c, Who: w.name})
		}
	}
	for round := range s.Rounds {
		for i, c := range cells() {
			rows := r.Rows[i*len(subjects):][:len(subjects)]
			for _, k := range order(len(subjects), round) {
				say("round %d of %d: %s, %s", round+1, s.Rounds, c, subjects[k].name)
				got, err := once(ctx, subjects[k], c, backend, s)
				if err != nil {
					return fmt.Errorf("%s: %w", c, err)
				}
				rows[k].intervals = append(rows[k].intervals, got)
			}
		}
	}
	for i := range cells() {
		summarize(r.Rows[i*len(subjects):][:len(subjects)])
	}
	return nil
}

func order(n, round int) []int {
	places := make([]int, n)
	for i := range places {
		places[i] = i
	}
	if round%2 == 1 {
		slices.Reverse(places)
	}
	return places
}

func once(ctx context.Context, w subject, c Cell, backend *environment.Server, s Settings) (environment.Interval, error) {
	generator, err := environment.NewLoadGenerator(w.server, environment.Ask{
		Method: http.MethodGet, Path: environment.Path(w.group) + c.below, Token: w.token, HTTP2: c.HTTP2, Clients: c.Clients,
	})
	if err != nil {
		return environment.Interval{}, err
	}
	defer generator.Leave()
	return generator.Measure(ctx, backend, s.Warm, s.Cell)
}
