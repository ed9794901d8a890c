package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"portico.dev/e2e/environment"
	"portico.dev/e2e/measure"
)

// Settings are the sizes and durations of the benchmark.
type Settings struct {
	// Parts lists the parts to measure.
	Parts []string
	// Warm is the duration of the warm-up, Rest the idle time before the measurements.
	Warm, Rest  time.Duration
	APIServices APIServiceSettings
	Connections ConnectionSettings
	Bindings    BindingSettings
	OpenAPI     OpenAPISettings
}

// The parts of the page.
const (
	partAPIServices = "apiservices"
	partConnections = "connections"
	partBindings    = "bindings"
	partOpenAPI     = "openapi"
)

// Parts lists all parts of the page.
var Parts = []string{partAPIServices, partConnections, partBindings, partOpenAPI}

// Full returns the settings of the published results. A run takes four minutes and a half.
func Full(parts ...string) Settings {
	return Settings{
		Parts: parts, Warm: time.Second, Rest: 10 * time.Second,
		APIServices: APIServiceSettings{Counts: []int{10, 1000}, Registered: 100, PerSecond: 100, Rounds: 2, Cell: 10 * time.Second},
		Connections: ConnectionSettings{Counts: []int{100, 10_000}, PerSecond: 2000, Cell: 5 * time.Second},
		Bindings:    BindingSettings{Namespaces: 5000, Bindings: 50_000, Changes: 42, Clients: 32, Rounds: 3, Cell: 4 * time.Second},
		OpenAPI:     OpenAPISettings{Backends: 400, Bytes: 250_000, Registered: 100, PerSecond: 200},
	}
}

// Quick returns settings that show only that the benchmark works.
func Quick(parts ...string) Settings {
	return Settings{
		Parts: parts, Warm: 50 * time.Millisecond, Rest: 500 * time.Millisecond,
		APIServices: APIServiceSettings{Counts: []int{3, 30}, Registered: 100, PerSecond: 50, Rounds: 1, Cell: time.Second},
		Connections: ConnectionSettings{Counts: []int{5, 200}, PerSecond: 200, Cell: time.Second},
		Bindings:    BindingSettings{Namespaces: 20, Bindings: 200, Changes: 42, Clients: 8, Rounds: 1, Cell: time.Second},
		OpenAPI:     OpenAPISettings{Backends: 10, Bytes: 250_000, Registered: 100, PerSecond: 50},
	}
}

// leastMemory is the memory that all processes need, with a reserve. With 10,000 connections, the client and each of
// two servers use 0.6 GB.
const leastMemory = 4 << 30

// Run measures the selected parts. program is the aggregator to measure; if it is empty, the aggregator is built from
// the tree.
func Run(ctx context.Context, program string, s Settings, say func(string, ...any)) (r *Report, err error) {
	if err := measure.CheckMemory(leastMemory); err != nil {
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
	for _, part := range []struct {
		name string
		run  func(ctx context.Context, y *environment.Environment, say func(string, ...any)) error
	}{
		{partAPIServices, r.apiServices}, {partConnections, r.connections}, {partBindings, r.bindings}, {partOpenAPI, r.openAPI},
	} {
		if len(s.Parts) > 0 && !slices.Contains(s.Parts, part.name) {
			continue
		}
		if err := within(ctx, program, part.name, say, part.run); err != nil {
			return nil, fmt.Errorf("%s: %w", part.name, err)
		}
	}
	r.Took = time.Since(r.Machine.Began)
	return r, nil
}

// within runs a part in a separate environment, so that its processes have ended when the next part begins.
func within(ctx context.Context, program, name string, say func(string, ...any), run func(ctx context.Context, y *environment.Environment, say func(string, ...any)) error) error {
	y, err := environment.New(program)
	if err != nil {
		return err
	}
	say("%s: starting", name)
	err = run(ctx, y, func(format string, args ...any) { say(name+": "+format, args...) })
	if err != nil {
		err = fmt.Errorf("%w\nthe front doors' log ends:\n%s", err, y.Log())
	}
	if ended := y.Close(); err == nil {
		err = ended
	}
	return err
}

// small is a GET of 1 KB, as alice.
var small = environment.Ask{Method: http.MethodGet, Token: environment.UserToken, HTTP2: true}

func pathsOf(count int) []string {
	var all []string
	for n := range count {
		all = append(all, environment.Path(n)+"/small")
	}
	return all
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

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
