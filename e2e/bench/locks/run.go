package locks

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/e2e/bench/shared"
	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// Settings are the sizes of the benchmark.
type Settings struct {
	Requests int `json:"requests"`
	Clients  int `json:"clients"`
	Streams  int `json:"streams"`
	// Watch is the time for which events are counted.
	Watch time.Duration `json:"watchNanoseconds"`
	// Record is the time for which the front door records. The requests must end within it.
	Record time.Duration `json:"-"`
	// Crowd is the number of clients while waits are measured, and Load the time.
	Crowd int           `json:"crowd"`
	Load  time.Duration `json:"loadNanoseconds"`
}

// Full returns the settings of the published results. A run takes two minutes, and the build up to ten.
func Full() Settings {
	return Settings{Requests: 1000, Clients: 32, Streams: 20, Watch: time.Second, Record: 8 * time.Second, Crowd: 256, Load: 5 * time.Second}
}

// Quick returns settings that show only that the benchmark works.
func Quick() Settings {
	return Settings{Requests: 50, Clients: 4, Streams: 4, Watch: time.Second, Record: 5 * time.Second, Crowd: 16, Load: time.Second}
}

// Run counts the writes of a build that records them, and measures the waits of program. If program is empty, it is built from the
// tree.
func Run(ctx context.Context, program string, s Settings, say func(string, ...any)) (*Report, error) {
	r := &Report{Machine: measure.ThisMachine(), Settings: s}
	dir, err := os.MkdirTemp("", "portico-locks-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	say("building the front door with a standard library that records; this takes minutes")
	recording, err := build(ctx, dir)
	if err != nil {
		return nil, err
	}
	y, err := environment.New(program)
	if err != nil {
		return nil, err
	}
	if err = r.run(ctx, y, recording, s, say); err != nil {
		err = fmt.Errorf("%w\nthe front door's log ends:\n%s", err, y.Log())
	}
	if ended := y.Close(); err == nil {
		err = ended
	}
	return r, err
}

func (r *Report) run(ctx context.Context, y *environment.Environment, recording string, s Settings, say func(string, ...any)) error {
	if _, err := y.Backend(); err != nil {
		return err
	}
	program, err := y.Aggregator()
	if err != nil {
		return err
	}
	front, err := open(ctx, y, program, "waits", "--contention-profiling")
	if err != nil {
		return err
	}
	for _, o := range operations(front.Server, s) {
		if o.path == "" {
			continue
		}
		say("waits: %s", o.name)
		got, err := waits(ctx, front, s, o)
		if err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
		r.Waits = append(r.Waits, got)
	}
	if front, err = open(ctx, y, recording, "writes"); err != nil {
		return err
	}
	for _, o := range operations(front.Server, s) {
		say("writes: %s", o.name)
		counted, err := count(ctx, front, s, o)
		if err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
		r.Operations = append(r.Operations, counted)
	}
	return nil
}

func open(ctx context.Context, y *environment.Environment, program, name string, flags ...string) (*environment.Front, error) {
	front, err := shared.OpenFront(ctx, y, program, name, time.Second, flags...)
	if err != nil {
		return nil, err
	}
	return front, mayView(ctx, front)
}

// operation is something that clients do. do returns how often it was done. For requests, path is not empty.
type operation struct {
	name, path string
	http2      bool
	do         func(ctx context.Context) (int, error)
}

func operations(server *environment.Server, s Settings) []operation {
	small := func(group int) string { return environment.Path(group) + "/small" }
	watch := "?watch=true&every=" + (time.Duration(s.Streams) * time.Millisecond).String()
	all := []operation{
		{name: "proxied GET, HTTP/2", path: small(shared.GroupAlone), http2: true},
		{name: "proxied GET, HTTP/1.1", path: small(shared.GroupAlone)},
		{name: "shared GET of one caller, HTTP/2", path: small(shared.GroupSame), http2: true},
		{name: "GET of a ConfigMap, HTTP/2", path: "/api/v1/namespaces/default/configmaps/kube-root-ca.crt", http2: true},
		{name: "event of a watch", do: events(server, s, environment.Path(shared.GroupAlone)+watch)},
		{name: "event of a shared watch", do: events(server, s, environment.Path(shared.GroupAll)+watch)},
	}
	for i, o := range all {
		if o.path != "" {
			all[i].do = requests(server, s, o.path, o.http2)
		}
	}
	return all
}

// mayView permits the user to read local objects.
func mayView(ctx context.Context, front *environment.Front) error {
	_, err := front.Client.RbacV1().RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "view"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "alice"}},
	}, metav1.CreateOptions{})
	return err
}

// perConnection is the number of clients on a connection of HTTP/2.
const perConnection = 8

func requests(to *environment.Server, s Settings, path string, http2 bool) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		share := 1
		if http2 {
			share = perConnection
		}
		var clients []*http.Client
		for range (s.Clients + share - 1) / share {
			c, err := environment.NewClient(to, http2)
			if err != nil {
				return 0, err
			}
			defer c.CloseIdleConnections()
			clients = append(clients, c)
		}
		ask := environment.Ask{Method: http.MethodGet, Path: path, Token: environment.UserToken, HTTP2: http2}
		return s.Requests, environment.Concurrency(ctx, s.Clients, 0, s.Requests, func(ctx context.Context, n int) error {
			return environment.Send(ctx, to, ask, "", clients[n%len(clients)])
		})
	}
}

func events(from *environment.Server, s Settings, path string) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		streams, err := environment.Open(ctx, from, environment.Ask{Method: http.MethodGet, Path: path, Token: environment.UserToken, HTTP2: true}, s.Streams)
		if err != nil {
			return 0, err
		}
		defer streams.Close()
		got, err := streams.Measure(ctx, from, 0, s.Watch)
		return got.Events, err
	}
}

// count does o while the front door records.
func count(ctx context.Context, front *environment.Front, s Settings, o operation) (Operation, error) {
	if _, err := o.do(ctx); err != nil { // connections and caches
		return Operation{}, err
	}
	before, err := recorded(ctx, front)
	if err != nil {
		return Operation{}, err
	}
	rest := front.Client.Discovery().RESTClient()
	recording := make(chan error, 1)
	began := time.Now()
	go func() {
		seconds := strconv.Itoa(int(s.Record / time.Second))
		recording <- rest.Get().AbsPath("/debug/pprof/profile").Param("seconds", seconds).Timeout(time.Minute).Do(ctx).Error()
	}()
	err = environment.Pause(ctx, time.Second)
	n := 0
	if err == nil {
		n, err = o.do(ctx)
	}
	took := time.Since(began)
	if ended := <-recording; err == nil {
		err = ended
	}
	if err != nil {
		return Operation{}, err
	}
	if took > s.Record {
		return Operation{}, fmt.Errorf("took %v, longer than the front door recorded (%v)", took, s.Record)
	}
	after, err := recorded(ctx, front)
	if err != nil {
		return Operation{}, err
	}
	return summarize(o.name, n, before, after), nil
}

func recorded(ctx context.Context, front *environment.Front) (map[write]int, error) {
	page, err := front.Client.Discovery().RESTClient().Get().AbsPath("/debug/pprof/mutex").Param("debug", "1").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	return parse(page)
}

// waits measures the waits for locks while many clients send requests.
func waits(ctx context.Context, front *environment.Front, s Settings, o operation) (Waits, error) {
	load, err := environment.NewLoadGenerator(front.Server, environment.Ask{
		Method: http.MethodGet, Path: o.path, Token: environment.UserToken, HTTP2: o.http2, Clients: s.Crowd,
	})
	if err != nil {
		return Waits{}, err
	}
	defer load.Leave()
	if _, err := load.Run(ctx, s.Load/5); err != nil { // connections and caches
		return Waits{}, err
	}
	before, err := blocked(ctx, front)
	if err != nil {
		return Waits{}, err
	}
	was, err := measure.CPU(front.Server.PID)
	if err != nil {
		return Waits{}, err
	}
	got, err := load.Run(ctx, s.Load)
	if err != nil {
		return Waits{}, err
	}
	is, err := measure.CPU(front.Server.PID)
	if err != nil {
		return Waits{}, err
	}
	after, err := blocked(ctx, front)
	if err != nil {
		return Waits{}, err
	}
	return summarizeWaits(o.name, got.Requests, is-was, before, after), nil
}

func blocked(ctx context.Context, front *environment.Front) (map[place]time.Duration, error) {
	page, err := front.Client.Discovery().RESTClient().Get().AbsPath("/debug/pprof/block").Param("debug", "1").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	return parseWaits(page)
}
