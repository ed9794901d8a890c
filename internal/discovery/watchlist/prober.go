package watchlist

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/metrics"
	"portico.dev/internal/run"
	"portico.dev/internal/transport"
)

const (
	// interval is the pause between two probes of a resource without events in between.
	interval = 10 * time.Minute
	// confirmAfter is the pause before the second of two consecutive probes that turn Honours into Ignores.
	confirmAfter = 5 * time.Second
	// firstRetry is the pause after an inconclusive probe. It doubles up to interval.
	firstRetry = 30 * time.Second
	// availableGap and newsGap are the minimum times between the starts of two probes of a resource when its APIService has
	// become available, and when its backend may run a different program.
	availableGap = time.Second
	newsGap      = 15 * time.Second
	// maxProbes is the maximum number of concurrent probes of all resources, and maxBackendProbes of one backend.
	maxProbes, maxBackendProbes = 16, 4
	// firstVerdictTime is how long a resource without a verdict is treated as one that ignores initial events, from the
	// time at which its backend became available. Informers that begin in this time must not hang.
	firstVerdictTime = 30 * time.Second
	// The pause between two updates from the routes is at least minFollow, and followFactor times the duration of the last
	// one, at most maxFollow.
	minFollow    = 20 * time.Millisecond
	maxFollow    = 200 * time.Millisecond
	followFactor = 20
)

// Route is one remote group-version with resources that are probed.
type Route struct {
	remote.Route
	// Resources are the known resources with the verb watch.
	Resources []string
}

// Config is the configuration of a Prober. All fields except BackendEvents are required.
type Config struct {
	// Routes returns the remote group-versions to probe.
	Routes func() []Route
	// RoutesChanged and DocumentsChanged return channels that are closed when the result of Routes may have changed.
	RoutesChanged, DocumentsChanged func() <-chan struct{}
	// BackendEvents reports backends that may run a different program. May be nil.
	BackendEvents *transport.Events
	Metrics       *metrics.Discovery
	Logger        *zap.Logger
}

// Prober probes every resource of the routes in the background: when its backend is first available, when its APIService
// becomes available again, when the backend may run a different program, and every 10 minutes. A verdict holds until
// another one replaces it; Undetermined does not replace any. Only Honours is discarded when the backend becomes
// unavailable. It is safe for concurrent use.
type Prober struct {
	cfg     Config
	timers  *run.TimerQueue
	turns   *transport.Turns
	current atomic.Pointer[snapshot]

	mu        sync.Mutex // guards the fields below, and the resources they point to
	resources map[schema.GroupVersionResource]*resource
	versions  map[schema.GroupVersion]version
	counts    [Undetermined + 1]int // number of published states, by verdict
}

// snapshot is read by requests. Its maps are immutable. The state of a resource is replaced after each of its probes:
// copying all states for each of a thousand probes would be most of their cost.
type snapshot struct {
	resources map[schema.GroupVersionResource]*atomic.Pointer[State]
	versions  map[schema.GroupVersion]version
}

// version is one group-version of the routes.
type version struct {
	available bool
	// settled is when firstVerdictTime is over for resources that are not in discovery yet.
	settled time.Time
}

// resource is one resource of one route.
type resource struct {
	gvr   schema.GroupVersionResource
	route remote.Route
	state State
	// published is the state that requests read, nil before it is first published.
	published atomic.Pointer[State]
	// task probes the resource. It is nil until its backend is first available.
	task *run.ScheduledTask
	// ignored is set if the last probe contradicted Honours. undetermined is the number of consecutive inconclusive probes.
	// restarted is set until a probe is answered after the backend was unavailable.
	ignored      bool
	restarted    bool
	undetermined int
}

// State describes one resource.
type State struct {
	APIService string `json:"apiService"`
	// Resource is <resource>.<version>.<group>.
	Resource string `json:"resource"`
	Verdict  string `json:"verdict"`
	// Reason is the observation of the last conclusive probe.
	Reason string `json:"reason,omitempty"`
	// At is when the last probe ended, zero before the first.
	At time.Time `json:"at,omitzero"`

	verdict Verdict
	// settled is when firstVerdictTime is over, zero until the backend is first available.
	settled time.Time
	// gone is set while the backend is not available. It may return as a different program, and informers connect to it
	// immediately, before the Prober processes the new routes. Until it is probed, it is treated as one that ignores
	// initial events.
	gone bool
}

// NewProber returns a Prober that has not probed anything yet.
func NewProber(cfg Config) *Prober {
	p := &Prober{
		cfg: cfg, timers: run.NewTimerQueue(), turns: transport.NewTurns(maxProbes, maxBackendProbes),
		resources: map[schema.GroupVersionResource]*resource{}, versions: map[schema.GroupVersion]version{},
	}
	p.current.Store(&snapshot{})
	return p
}

// Run probes until ctx ends, and returns when no probe is running.
func (p *Prober) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if p.cfg.BackendEvents != nil {
		defer p.cfg.BackendEvents.Subscribe(&transport.Subscriber{
			DocumentsMayDiffer: func(b *transport.Backend) { p.probeSoon(b) },
		})()
	}
	wg.Go(func() { p.timers.Run(ctx) })
	for ctx.Err() == nil {
		// Get the channels before reading the data: a change in between is processed twice rather than missed.
		routesChanged, documentsChanged := p.cfg.RoutesChanged(), p.cfg.DocumentsChanged()
		start := time.Now()
		p.follow(p.cfg.Routes())
		run.Pause(ctx, min(max(minFollow, followFactor*time.Since(start)), maxFollow))
		select {
		case <-ctx.Done():
		case <-routesChanged:
		case <-documentsChanged:
		}
	}
	return nil
}

// Rejects reports whether a watch with initial events must be answered with 422: its server ignores sendInitialEvents, or
// was not probed yet and became available less than 30 s ago. The caller has found an available route for the resource. A
// resource that is missing or unavailable in the snapshot is about to be updated, because requests use new routes before
// the Prober does. Rejects does not allocate.
func (p *Prober) Rejects(of schema.GroupVersionResource) bool {
	s := p.current.Load()
	if published, ok := s.resources[of]; ok {
		state := published.Load()
		return state.verdict == Ignores || state.verdict == Unprobed && (state.gone || state.settled.IsZero() || time.Now().Before(state.settled))
	}
	v, ok := s.versions[of.GroupVersion()]
	return !ok || !v.available || time.Now().Before(v.settled)
}

// States returns the state of every resource, sorted by APIService and name.
func (p *Prober) States() []State {
	s := p.current.Load()
	states := make([]State, 0, len(s.resources))
	for _, published := range s.resources {
		state := *published.Load()
		state.Verdict = state.verdict.String()
		states = append(states, state)
	}
	slices.SortFunc(states, func(a, b State) int {
		return cmp.Or(cmp.Compare(a.APIService, b.APIService), cmp.Compare(a.Resource, b.Resource))
	})
	return states
}

// follow updates the resources from the routes.
func (p *Prober) follow(routes []Route) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	versions := make(map[schema.GroupVersion]version, len(routes))
	seen := make(map[schema.GroupVersionResource]bool, len(p.resources))
	for _, r := range routes {
		v := p.versions[r.GroupVersion]
		if r.Available && !v.available {
			v.settled = now.Add(firstVerdictTime)
		}
		v.available = r.Available
		versions[r.GroupVersion] = v
		for _, name := range r.Resources {
			of := r.GroupVersion.WithResource(name)
			seen[of] = true
			p.followResource(of, r.Route, now)
		}
	}
	for of, x := range p.resources {
		if !seen[of] {
			if x.task != nil {
				x.task.Remove()
			}
			delete(p.resources, of)
		}
	}
	p.publishAll(versions)
}

// followResource updates one resource from its route. The caller must hold mu.
func (p *Prober) followResource(of schema.GroupVersionResource, r remote.Route, now time.Time) {
	x := p.resources[of]
	if x == nil {
		x = &resource{gvr: of, route: r}
		p.resources[of] = x
		x.reset()
	}
	before := x.route
	x.route = r
	if !sameServer(before, r) {
		x.reset()
	}
	if !r.Available || r.Backend == nil {
		if x.state.verdict == Honours {
			x.state.verdict, x.restarted, x.ignored, x.state.gone = Unprobed, true, false, true
		}
		return
	}
	if x.state.settled.IsZero() || x.state.gone {
		x.state.settled, x.state.gone = now.Add(firstVerdictTime), false
	}
	switch {
	case x.task == nil:
		x.task = p.timers.Add(func(ctx context.Context) time.Duration { return p.probe(ctx, x) })
	case !before.Available, !sameServer(before, r):
		x.undetermined = 0
		x.task.RunWithin(availableGap)
	}
}

// reset discards the verdict. The caller must hold the Prober's mu.
func (x *resource) reset() {
	x.state = State{APIService: x.route.APIService, Resource: x.gvr.Resource + "." + x.gvr.Version + "." + x.gvr.Group}
	x.ignored, x.undetermined = false, 0
}

// sameServer reports whether a verdict about the server of route a also applies to the server of route b.
func sameServer(a, b remote.Route) bool {
	return a.APIService == b.APIService && a.UID == b.UID && a.Revision == b.Revision && a.Backend == b.Backend
}

// probeSoon probes the resources of a backend that may run a different program.
func (p *Prober) probeSoon(b remote.Backend) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.resources {
		if x.task != nil && x.route.Backend == b {
			x.undetermined = 0
			x.task.RunWithin(newsGap)
		}
	}
}

// probe probes one resource and returns the pause before its next probe.
func (p *Prober) probe(ctx context.Context, x *resource) time.Duration {
	p.mu.Lock()
	r := x.route
	p.mu.Unlock()
	if !r.Available || r.Backend == nil {
		return interval // a change of the route triggers the next probe earlier
	}
	release, err := p.turns.Wait(ctx, r.Backend.Name())
	if err != nil {
		return interval
	}
	defer release()
	v, reason := Probe(ctx, r.Backend.Probe(), x.gvr)
	if ctx.Err() != nil {
		return interval
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !x.route.Available || !sameServer(r, x.route) {
		return interval // a change of the route triggers the next probe earlier
	}
	pause := x.take(v, reason)
	p.publish(x)
	p.report()
	return pause
}

// take processes a probe's verdict and returns the pause before the next probe. The caller must hold the Prober's mu.
func (x *resource) take(v Verdict, reason string) time.Duration {
	x.state.At = time.Now()
	if v == Undetermined {
		x.undetermined++
		if x.state.verdict <= Unprobed || x.state.verdict == Undetermined {
			x.state.verdict, x.state.Reason = v, reason
		}
		return jitter(min(firstRetry<<min(x.undetermined-1, 8), interval))
	}
	x.undetermined = 0
	if v == Ignores && x.state.verdict == Honours && !x.ignored {
		x.ignored = true
		return confirmAfter
	}
	if v == Ignores && x.restarted { // it may only be slow after its start
		x.restarted = false
		x.state.verdict, x.state.Reason = v, reason
		return confirmAfter
	}
	x.restarted = false
	x.ignored = false
	x.state.verdict, x.state.Reason = v, reason
	return jitter(interval)
}

// jitter prevents replicas, and resources that were added together, from probing in step.
func jitter(d time.Duration) time.Duration { return d - rand.N(d/5+1) }

// publishAll replaces the snapshot. The caller must hold mu.
func (p *Prober) publishAll(versions map[schema.GroupVersion]version) {
	p.versions = versions
	for _, x := range p.resources {
		p.publish(x)
	}
	before := p.current.Load().resources
	now := before
	if !sameResources(before, p.resources) {
		now = make(map[schema.GroupVersionResource]*atomic.Pointer[State], len(p.resources))
		for of, x := range p.resources {
			now[of] = &x.published
		}
	}
	p.current.Store(&snapshot{resources: now, versions: versions})
	for of, published := range before {
		if x := p.resources[of]; x == nil || &x.published != published {
			p.counts[published.Load().verdict]--
		}
	}
	p.report()
}

// sameResources reports whether a snapshot has exactly these resources.
func sameResources(published map[schema.GroupVersionResource]*atomic.Pointer[State], now map[schema.GroupVersionResource]*resource) bool {
	if len(published) != len(now) {
		return false
	}
	for of, x := range now {
		if published[of] != &x.published {
			return false
		}
	}
	return true
}

// publish publishes the state of one resource. The caller must hold mu.
func (p *Prober) publish(x *resource) {
	var before State
	if published := x.published.Load(); published != nil {
		if *published == x.state {
			return
		}
		before = *published
		p.counts[before.verdict]--
	}
	state := x.state
	x.published.Store(&state)
	p.counts[state.verdict]++
	p.logChange(before, state)
}

// report sets the metrics. The caller must hold mu.
func (p *Prober) report() {
	for v, n := range p.counts {
		p.cfg.Metrics.InitialEvents.WithLabelValues(Verdict(v).String()).Set(float64(n))
	}
}

// logChange logs a verdict that changes how clients are answered.
func (p *Prober) logChange(before, now State) {
	if (before.verdict == Ignores) == (now.verdict == Ignores) || now.verdict == Unprobed {
		return
	}
	fields := []zap.Field{zap.String("apiservice", now.APIService), zap.String("resource", now.Resource), zap.String("verdict", now.verdict.String()), zap.String("reason", now.Reason)}
	if now.verdict == Ignores {
		p.cfg.Logger.Info("extension server ignores sendInitialEvents; rejecting such watches with 422", fields...)
		return
	}
	p.cfg.Logger.Info("forwarding watches with sendInitialEvents", fields...)
}
