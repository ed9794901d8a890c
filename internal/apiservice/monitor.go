package apiservice

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/run"
	"portico.dev/internal/transport"
)

// monitor watches one backend, for all the group-versions that it serves, in rounds. A round asks for what is not known
// to be good; when everything is, for the group-version that was asked for the longest ago. So a backend with ten
// group-versions costs as much as one with one, and a failure of the connection, the same for all, is learned once.
type monitor struct {
	lane http.RoundTripper
	// endpoints is how many endpoints the lane has now.
	endpoints func() int
	// silence is whether the backend is silent to everybody. Nil: nobody can tell.
	silence func() transport.Silence
	// base is https and the Service's DNS name and port.
	base   string
	prober *prober
	// changed is told the group-versions whose history now reads differently.
	changed func([]schema.GroupVersion)
	// spoke is told that the backend says something else of a group-version than it did, or is well and may be another
	// program than before. Nil: nobody is.
	spoke func()

	// turn is when rounds are made; nil before there is one.
	turn atomic.Pointer[run.ScheduledTask]
	// nudged is set when somebody asked for a round, and shaken when something happened that may have been a restart, until
	// it is known to be well again.
	nudged, shaken atomic.Bool
	// answered is when a request was last answered, in Unix nanoseconds.
	answered atomic.Int64

	mu       sync.Mutex // for what follows
	versions histories
	// eagerUntil is how long failures are retried at a quick pace.
	eagerUntil time.Time
	next       time.Time
	// usual is how long the backend takes to answer a probe: the longest of late, and half of it at each round that was
	// quicker.
	usual time.Duration
}

func newMonitor(lane http.RoundTripper, endpoints func() int, base string, p *prober, changed func([]schema.GroupVersion)) *monitor {
	return &monitor{
		lane:      lane,
		endpoints: endpoints,
		base:      base,
		prober:    p,
		changed:   changed,
	}
}

// watch says which group-versions to ask for. One that is new, or that was away, starts without a history and is asked
// for at once.
func (m *monitor) watch(gvs []schema.GroupVersion) {
	m.mu.Lock()
	kept := make(histories, len(gvs))
	fresh := false
	for i, gv := range gvs {
		kept[i].of = gv
		if h := m.versions.get(gv); h != nil {
			kept[i].history = *h
		}
		fresh = fresh || !kept[i].asked()
	}
	m.versions = kept
	m.mu.Unlock()
	if fresh {
		m.nudge()
	}
}

// hurry asks for a round now and a quick pace after it, because something about the backend changed.
func (m *monitor) hurry() {
	m.mu.Lock()
	m.eagerUntil = time.Now().Add(eagerFor)
	m.mu.Unlock()
	m.shake()
}

// shake asks for a round soon after which nothing may be as it was.
func (m *monitor) shake() {
	m.shaken.Store(true)
	m.nudge()
}

// nudge asks for a round soon.
func (m *monitor) nudge() {
	m.nudged.Store(true)
	if t := m.turn.Load(); t != nil {
		t.RunWithin(minGap)
	}
}

// vouch notes that the backend answered a request. Where it was believed to be hung, it is not.
func (m *monitor) vouch() {
	now := time.Now()
	m.answered.Store(now.UnixNano())
	var differ []schema.GroupVersion
	m.mu.Lock()
	for i := range m.versions {
		h := &m.versions[i]
		if after := h.refuted(); after.up != h.up {
			h.history = after
			// It may be this slow again.
			m.usual = max(m.usual, hungAfter)
			differ = append(differ, h.of)
		}
	}
	m.mu.Unlock()
	if len(differ) > 0 {
		m.changed(differ)
	}
}

// history returns what is known of a group-version.
func (m *monitor) history(gv schema.GroupVersion) history {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.versions.get(gv); h != nil {
		return *h
	}
	return history{}
}

// url is what is asked for a group-version, with the name of the Service for a host.
func (m *monitor) url(gv schema.GroupVersion) string { return m.base + discoveryPath(gv) }

// join begins with rounds, at once. They end with those of the rota, or when the turn is left.
func (m *monitor) join(r *run.TimerQueue) *run.ScheduledTask {
	t := r.Add(m.look)
	m.turn.Store(t)
	return t
}

// look makes a round, unless it would show nothing that is not known. It returns how long to rest.
func (m *monitor) look(ctx context.Context) time.Duration {
	if m.nudged.Swap(false) || !m.trafficVouches() {
		m.round(ctx)
	}
	return m.plan()
}

// well reports that every group-version passed its last probe. Where it is not so, the next round is near anyway.
func (m *monitor) well() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.versions {
		if !h.good() {
			return false
		}
	}
	return true
}

// trafficVouches reports that requests show what a round would: all was well, and a request was answered just now.
func (m *monitor) trafficVouches() bool {
	now := time.Now()
	if now.Sub(time.Unix(0, m.answered.Load())) > trafficCounts || !m.well() {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var asked time.Time
	for _, h := range m.versions {
		if h.last.at.After(asked) {
			asked = h.last.at
		}
	}
	return now.Sub(asked) < longestTrust
}

// round asks for what is due: one group-version first, the others when it has been heard. A failure of the connection
// settles all.
func (m *monitor) round(ctx context.Context) {
	due := m.due()
	if len(due) == 0 {
		return
	}
	lead := due[0]
	o := m.ask(ctx, lead)
	if ctx.Err() != nil {
		return
	}
	if o.failure != nil && o.failure.unreachable {
		m.record(m.all(), o)
		return
	}
	rest := due[1:]
	if m.record([]schema.GroupVersion{lead}, o) {
		// The lead fell, or rose: the others are likely to have done the same.
		rest = slices.DeleteFunc(m.all(), func(gv schema.GroupVersion) bool { return gv == lead })
	}
	m.askAll(ctx, rest)
}

// maxParallel bounds the group-versions of one backend that are asked for at the same time.
const maxParallel = 4

func (m *monitor) askAll(ctx context.Context, gvs []schema.GroupVersion) {
	slots := make(chan struct{}, maxParallel)
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, gv := range gvs {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		wg.Go(func() {
			defer func() { <-slots }()
			if o := m.ask(ctx, gv); ctx.Err() == nil {
				m.record([]schema.GroupVersion{gv}, o)
			}
		})
	}
}

func (m *monitor) ask(ctx context.Context, gv schema.GroupVersion) outcome {
	t := target{lane: m.lane, url: m.url(gv), endpoints: m.endpoints()}
	m.mu.Lock()
	// What is down already gets all the time that it may need to return.
	if h := m.versions.get(gv); m.silence != nil && h != nil && h.up {
		t.suspicion = newSuspicion(m.silence, m.usual)
	}
	m.mu.Unlock()
	o := m.prober.ask(ctx, t)
	if o.failure == nil {
		m.mu.Lock()
		m.usual = max(o.took, m.usual/2)
		m.mu.Unlock()
	}
	return o
}

// due lists what a round has to ask for: group-versions that are not known to be good, those that failed least often
// first, and the good one asked for longest ago when there is no other, or when it has not been asked for as long as a
// healthy backend would leave it.
func (m *monitor) due() []schema.GroupVersion {
	m.mu.Lock()
	defer m.mu.Unlock()
	var due, good []schema.GroupVersion
	for _, h := range m.versions {
		if h.good() {
			good = append(good, h.of)
		} else {
			due = append(due, h.of)
		}
	}
	slices.SortFunc(due, func(a, b schema.GroupVersion) int {
		return cmp.Or(cmp.Compare(m.versions.get(a).failures, m.versions.get(b).failures), compareGroupVersions(a, b))
	})
	if len(good) == 0 {
		return due
	}
	stalest := slices.MinFunc(good, func(a, b schema.GroupVersion) int {
		return cmp.Or(m.versions.get(a).last.at.Compare(m.versions.get(b).last.at), compareGroupVersions(a, b))
	})
	if len(due) == 0 || time.Since(m.versions.get(stalest).last.at) >= healthyInterval {
		due = append(due, stalest)
	}
	return due
}

func (m *monitor) all() []schema.GroupVersion {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]schema.GroupVersion, len(m.versions))
	for i, h := range m.versions {
		all[i] = h.of
	}
	slices.SortFunc(all, compareGroupVersions)
	return all
}

func compareGroupVersions(a, b schema.GroupVersion) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version))
}

// record adds an outcome to group-versions that are still watched, tells the controller which of them read differently
// now, and reports whether one fell or rose.
func (m *monitor) record(gvs []schema.GroupVersion, o outcome) (flipped bool) {
	var differ []schema.GroupVersion
	news := false
	m.mu.Lock()
	for _, gv := range gvs {
		h := m.versions.get(gv)
		if h == nil { // not watched any more
			continue
		}
		before, after := *h, h.record(o)
		*h = after
		if before.asked() && before.up != after.up {
			flipped = true
		}
		news = news || before.last.said != 0 && before.last.said != after.last.said
		if before.up && !after.up {
			m.eagerUntil = time.Now().Add(eagerFor)
		}
		if readsDifferently(before, after) {
			differ = append(differ, gv)
		}
	}
	m.mu.Unlock()
	if len(differ) > 0 {
		m.changed(differ)
	}
	if o.failure == nil && m.shaken.Swap(false) {
		news = true
	}
	if news && m.spoke != nil {
		m.spoke()
	}
	return flipped
}

// readsDifferently reports whether two histories can give different conditions.
func readsDifferently(a, b history) bool {
	if a.asked() != b.asked() || a.up != b.up || !a.last.certificateExpires.Equal(b.last.certificateExpires) {
		return true
	}
	return !b.up && a.last.failure.message("") != b.last.failure.message("")
}

// plan is the time until the next round.
func (m *monitor) plan() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	failures := 0
	for _, h := range m.versions {
		if n := h.failures; n > 0 && (failures == 0 || n < failures) {
			failures = n
		}
	}
	wait := jitter(pace(failures, time.Now().Before(m.eagerUntil)))
	m.next = time.Now().Add(wait)
	return wait
}
