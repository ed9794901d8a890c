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
	// interval is the pause between two probes of a resource about which nothing was heard.
	interval = 10 * time.Minute
	// confirmAfter is the pause before the second of two probes in a row that turn Honours into Ignores.
	confirmAfter = 5 * time.Second
	// firstRetry is the pause after a probe that said nothing. It doubles up to interval.
	firstRetry = 30 * time.Second
	// availableGap and newsGap are the least time between the starts of two probes of a resource when its APIService has
	// become available, and when its backend may be another program than before.
	availableGap = time.Second
	newsGap      = 15 * time.Second
	// maxProbes bounds the concurrent probes of all resources, and maxBackendProbes those at one backend.
	maxProbes, maxBackendProbes = 16, 4
	// firstVerdictTime is how long a resource without a verdict is treated as one that ignores initial events, from when its
	// backend is available. Informers must not hang that begin in this time.
	firstVerdictTime = 30 * time.Second
	// The pause between two looks at the routes is at least minFollow, and followFactor times what the last one took, maxFollow at
	// most.
	minFollow    = 20 * time.Millisecond
	maxFollow    = 200 * time.Millisecond
	followFactor = 20
)

// Route is one remote group-version whose resources are probed.
type Route struct {
	remote.Route
	// Resources are those with the verb watch, as far as they are known.
	Resources []string
}

// Config is what a Prober needs. All but BackendEvents is required.
type Config struct {
	// Routes returns the remote group-versions that are to be probed.
	Routes func() []Route
	// RoutesChanged and DocumentsChanged return channels that are closed when Routes may return something else.
	RoutesChanged, DocumentsChanged func() <-chan struct{}
	// BackendEvents tells of backends that may be other programs than before. Default nil: nobody tells.
	BackendEvents *transport.Events
	Metrics       *metrics.Discovery
	Logger        *zap.Logger
}

// Prober probes every resource of the routes in the background: when it is first seen with its backend available, when its
// APIService becomes available again, when the backend may be another program than before, and every 10 minutes. A verdict
// holds until another replaces it; Undetermined replaces none. Only Honours is forgotten when the backend becomes unavailable.
// It is safe for concurrent use.
type Prober struct {
	cfg     Config
	timers  *run.TimerQueue
	turns   *transport.Turns
	current atomic.Pointer[snapshot]

	mu        sync.Mutex // protects what follows, and what the resources point to
	resources map[schema.GroupVersionResource]*resource
	versions  map[schema.GroupVersion]version
	counts    [Undetermined + 1]int // of the published states, by verdict
}

// snapshot is what requests read. Its maps are immutable. The state of a resource is replaced when it was probed: a copy of
// all for each of a thousand probes would be most of what they cost.
type snapshot struct {
	resources map[schema.GroupVersionResource]*atomic.Pointer[State]
	versions  map[schema.GroupVersion]version
}

// version is one group-version of the routes.
type version struct {
	available bool
	// settled is when firstVerdictTime is over for resources that discovery has not named yet.
	settled time.Time
}

// resource is one resource of one route.
type resource struct {
	of    schema.GroupVersionResource
	route remote.Route
	state State
	// published is what requests read of it; nil before the first time.
	published atomic.Pointer[State]
	// task probes it; nil while its backend was never available.
	task *run.ScheduledTask
	// ignored is whether the last probe contradicted Honours, undetermined how many in a row said nothing, and restarted
	// whether none was answered since the backend was last not available.
	ignored      bool
	restarted    bool
	undetermined int
}

// State is what is known about one resource.
type State struct {
	APIService string `json:"apiService"`
	// Resource is <resource>.<version>.<group>.
	Resource string `json:"resource"`
	Verdict  string `json:"verdict"`
	// Reason is what the last probe that counted has seen.
	Reason string `json:"reason,omitempty"`
	// At is when the last probe ended, zero before the first.
	At time.Time `json:"at,omitzero"`

	verdict Verdict
	// settled is when firstVerdictTime is over; zero while the backend was never available.
	settled time.Time
	// gone is a backend that is not available. Another program may come back, and informers connect to it at once, before the
	// new routes are seen here: until it is probed, it counts as one that ignores initial events.
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

// Run probes until ctx ends, and returns when no probe is under way any more.
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
		// Taken before what they announce is read: a change in between is seen again rather than missed.
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

// Rejects reports whether a watch that asks for initial events is to be answered with 422: its server ignores them, or was
// not probed yet and became available less than 30 s ago. The resource is one of a route that is available: what is not there
// or not available here is so in a moment, because requests see new routes before the Prober does. It does not allocate.
func (p *Prober) Rejects(of schema.GroupVersionResource) bool {
	s := p.current.Load()
	if published, ok := s.resources[of]; ok {
		state := published.Load()
		return state.verdict == Ignores || state.verdict == Unprobed && (state.gone || state.settled.IsZero() || time.Now().Before(state.settled))
	}
	v, ok := s.versions[of.GroupVersion()]
	return !ok || !v.available || time.Now().Before(v.settled)
}

// States returns what is known about every resource, sorted by APIService and name.
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

// follow takes over the routes.
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

// followResource takes over the route of one resource. The caller holds mu.
func (p *Prober) followResource(of schema.GroupVersionResource, r remote.Route, now time.Time) {
	x := p.resources[of]
	if x == nil {
		x = &resource{of: of, route: r}
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

// reset forgets the verdict. The caller holds the Prober's mu.
func (x *resource) reset() {
	x.state = State{APIService: x.route.APIService, Resource: x.of.Resource + "." + x.of.Version + "." + x.of.Group}
	x.ignored, x.undetermined = false, 0
}

// sameServer reports whether a verdict about the server of one route holds for that of another.
func sameServer(a, b remote.Route) bool {
	return a.APIService == b.APIService && a.UID == b.UID && a.Revision == b.Revision && a.Backend == b.Backend
}

// probeSoon probes the resources of a backend that may be another program than before.
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
		return interval // it is hastened when that changes
	}
	release, err := p.turns.Wait(ctx, r.Backend.Name())
	if err != nil {
		return interval
	}
	defer release()
	v, reason := Probe(ctx, r.Backend.Probe(), x.of)
	if ctx.Err() != nil {
		return interval
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !x.route.Available || !sameServer(r, x.route) {
		return interval // likewise
	}
	pause := x.take(v, reason)
	p.publish(x)
	p.report()
	return pause
}

// take takes a probe's verdict over and returns the pause before the next probe. The caller holds the Prober's mu.
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

// jitter keeps replicas, and resources that were first seen together, from staying in step.
func jitter(d time.Duration) time.Duration { return d - rand.N(d/5+1) }

// publishAll replaces the snapshot. The caller holds mu.
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

// sameResources reports whether a snapshot has these resources and no others.
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

// publish publishes the state of one resource. The caller holds mu.
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

// report sets the metrics. The caller holds mu.
func (p *Prober) report() {
	for v, n := range p.counts {
		p.cfg.Metrics.InitialEvents.WithLabelValues(Verdict(v).String()).Set(float64(n))
	}
}

// logChange logs that clients are treated in another way than before.
func (p *Prober) logChange(before, now State) {
	if (before.verdict == Ignores) == (now.verdict == Ignores) || now.verdict == Unprobed {
		return
	}
	fields := []zap.Field{zap.String("apiservice", now.APIService), zap.String("resource", now.Resource), zap.String("verdict", now.verdict.String()), zap.String("reason", now.Reason)}
	if now.verdict == Ignores {
		p.cfg.Logger.Info("the extension server ignores the wish for initial events; such watches are answered with 422, and clients list first", fields...)
		return
	}
	p.cfg.Logger.Info("watches that ask for initial events are passed on", fields...)
}
