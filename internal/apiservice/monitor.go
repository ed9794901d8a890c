package apiservice

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/run"
	"portico.dev/internal/transport"
)

// monitor probes one backend for all of its group-versions, in rounds. A round probes the group-versions that are not known
// to be available. If all are available, it probes the one with the oldest probe. A backend with ten group-versions
// therefore costs as much as a backend with one, and a connection failure, which affects all group-versions, is detected
// once.
type monitor struct {
	transport http.RoundTripper
	// endpoints returns the number of endpoints.
	endpoints func() int
	// silence returns since when the backend has not answered any request. Nil if not known.
	silence func() transport.Silence
	// waiting fails the requests that wait for the backend while it does not answer. Nil if not supported.
	waiting blocker
	// several contains the endpoints of the backend. Nil if they are not compared.
	several endpointSet
	// base is https and the Service's DNS name and port.
	base   string
	prober *prober
	// historyChanged is called with the group-versions with a verdict that may have changed.
	historyChanged func([]schema.GroupVersion)
	// documentsMayDiffer is called when the backend's response to a probe changed, or when the backend is healthy and may
	// run a different program. May be nil.
	documentsMayDiffer func()

	// task schedules the rounds; nil before start.
	task atomic.Pointer[run.ScheduledTask]
	// requested is set when a round was requested. mayHaveRestarted is set by an event that may have been a restart, until
	// the backend is healthy again.
	requested, mayHaveRestarted atomic.Bool
	// lastAnswer is when a request was last answered, in Unix nanoseconds.
	lastAnswer atomic.Int64

	mu       sync.Mutex // guards the fields below
	versions histories
	// fastUntil is the time until which failures are retried quickly.
	fastUntil time.Time
	// next is when the next round begins, unless one is requested.
	next time.Time
	// usualDuration is the usual duration of a probe: the longest recent duration, halved with every faster round.
	usualDuration time.Duration
	// compared is when the endpoints were last compared. differing contains the endpoints that are ejected because their
	// document differs, and ejected all ejected endpoints.
	compared  time.Time
	differing []string
	ejected   []transport.Ejection
}

func newMonitor(rt http.RoundTripper, endpoints func() int, base string, p *prober, changed func([]schema.GroupVersion)) *monitor {
	return &monitor{
		transport:      rt,
		endpoints:      endpoints,
		base:           base,
		prober:         p,
		historyChanged: changed,
	}
}

// blocker makes requests to a backend fail immediately, including waiting requests. *transport.Backend implements it.
type blocker interface {
	Block(why error, silent bool)
	Unblock()
}

// endWaiting blocks the backend while none of its group-versions can be reached, with the latest failure as the reason, and
// unblocks it otherwise. The caller must hold mu.
func (m *monitor) endWaiting() {
	if m.waiting == nil {
		return
	}
	var why *failure
	for _, h := range m.versions {
		f := h.last.failure
		if h.up || f == nil || !f.unreachable {
			m.waiting.Unblock()
			return
		}
		if why == nil || f.silent {
			why = f
		}
	}
	if why != nil {
		m.waiting.Block(errors.New(why.message), why.silent)
	}
}

// watch sets the group-versions to probe. New ones start without a history and are probed immediately.
func (m *monitor) watch(gvs []schema.GroupVersion) {
	m.mu.Lock()
	kept := make(histories, len(gvs))
	fresh := false
	for i, gv := range gvs {
		kept[i].of = gv
		if h := m.versions.lookup(gv); h != nil {
			kept[i].history = *h
		}
		fresh = fresh || !kept[i].probed()
	}
	m.versions = kept
	m.mu.Unlock()
	if fresh {
		m.probeSoon()
	}
}

// probeFast requests a round, and quick retries after it, because the backend changed.
func (m *monitor) probeFast() {
	m.mu.Lock()
	m.fastUntil = time.Now().Add(fastRetryTime)
	m.mu.Unlock()
	m.probeAfterFault()
}

// probeAfterFault requests a round after an event that may have been a restart of the backend.
func (m *monitor) probeAfterFault() {
	m.mayHaveRestarted.Store(true)
	m.probeSoon()
}

// probeSoon requests a round.
func (m *monitor) probeSoon() {
	m.requested.Store(true)
	if t := m.task.Load(); t != nil {
		t.RunWithin(minProbeGap)
	}
}

// recordAnswer records that the backend answered a request, and withdraws verdicts that it hangs.
func (m *monitor) recordAnswer() {
	now := time.Now()
	m.lastAnswer.Store(now.UnixNano())
	var differ []schema.GroupVersion
	m.mu.Lock()
	for i := range m.versions {
		h := &m.versions[i]
		if after := h.withdrawSilence(); after.up != h.up {
			h.history = after
			// The backend may be as slow again.
			m.usualDuration = max(m.usualDuration, hungTimeout)
			differ = append(differ, h.of)
		}
	}
	if len(differ) > 0 {
		m.endWaiting()
	}
	m.mu.Unlock()
	if len(differ) > 0 {
		m.historyChanged(differ)
	}
}

// history returns the history of a group-version.
func (m *monitor) history(gv schema.GroupVersion) history {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.versions.lookup(gv); h != nil {
		return *h
	}
	return history{}
}

// url returns the URL of the probe of a group-version, with the name of the Service as host.
func (m *monitor) url(gv schema.GroupVersion) string { return m.base + DiscoveryPath(gv) }

// start starts the rounds immediately. They end with the timer queue, or when the task is removed.
func (m *monitor) start(r *run.TimerQueue) *run.ScheduledTask {
	t := r.Add(m.look)
	m.task.Store(t)
	return t
}

// look makes a round, unless answered requests make it unnecessary. It returns the time until the next call.
func (m *monitor) look(ctx context.Context) time.Duration {
	asked := m.requested.Swap(false)
	if asked || m.roundIsDue() {
		if asked || !m.trafficSuffices() {
			m.round(ctx)
		}
		m.scheduleRound()
	}
	m.checkEndpoints(ctx, asked)
	return m.untilNext()
}

// healthy reports whether the last probe of every group-version succeeded. If not, the next round is due soon anyway.
func (m *monitor) healthy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.versions {
		if !h.good() {
			return false
		}
	}
	return true
}

// trafficSuffices reports whether answered requests make a round unnecessary: all probes succeeded, and a request was
// answered recently.
func (m *monitor) trafficSuffices() bool {
	now := time.Now()
	if now.Sub(time.Unix(0, m.lastAnswer.Load())) > trafficWindow || !m.healthy() {
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
	return now.Sub(asked) < maxTrafficTrust
}

// round probes the group-versions that are due: first one, then the rest. A connection failure counts for all.
func (m *monitor) round(ctx context.Context) {
	due := m.due()
	if len(due) == 0 {
		return
	}
	lead := due[0]
	o := m.probe(ctx, lead)
	if ctx.Err() != nil {
		return
	}
	if o.failure != nil && o.failure.unreachable {
		m.record(m.all(), o)
		return
	}
	rest := due[1:]
	if m.record([]schema.GroupVersion{lead}, o) {
		// The first became available or unavailable: the remaining ones have probably changed too.
		rest = slices.DeleteFunc(m.all(), func(gv schema.GroupVersion) bool { return gv == lead })
	}
	m.probeAll(ctx, rest)
}

// maxParallel is the maximum number of group-versions of one backend that are probed concurrently.
const maxParallel = 4

func (m *monitor) probeAll(ctx context.Context, gvs []schema.GroupVersion) {
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
			if o := m.probe(ctx, gv); ctx.Err() == nil {
				m.record([]schema.GroupVersion{gv}, o)
			}
		})
	}
}

func (m *monitor) probe(ctx context.Context, gv schema.GroupVersion) outcome {
	t := probeTarget{transport: m.transport, url: m.url(gv), endpoints: m.endpoints()}
	m.mu.Lock()
	// A backend that is already down gets the full timeout to answer.
	if h := m.versions.lookup(gv); m.silence != nil && h != nil && h.up {
		t.hang = newHangDetector(m.silence, m.usualDuration)
	}
	m.mu.Unlock()
	o := m.prober.probe(ctx, t)
	if o.failure == nil {
		m.mu.Lock()
		m.usualDuration = max(o.duration, m.usualDuration/2)
		m.mu.Unlock()
	}
	return o
}

// due returns the group-versions that a round must probe: the ones that are not known to be available, in ascending order of
// failures, and the available one with the oldest probe if there are no others or if healthyInterval has passed.
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
		return cmp.Or(cmp.Compare(m.versions.lookup(a).failures, m.versions.lookup(b).failures), compareGroupVersions(a, b))
	})
	if len(good) == 0 {
		return due
	}
	stalest := slices.MinFunc(good, func(a, b schema.GroupVersion) int {
		return cmp.Or(m.versions.lookup(a).last.at.Compare(m.versions.lookup(b).last.at), compareGroupVersions(a, b))
	})
	if len(due) == 0 || time.Since(m.versions.lookup(stalest).last.at) >= healthyInterval {
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

// record adds an outcome to group-versions that are still watched, notifies the controller of changes, and reports whether
// one became available or unavailable.
func (m *monitor) record(gvs []schema.GroupVersion, o outcome) (flipped bool) {
	var differ []schema.GroupVersion
	news := false
	m.mu.Lock()
	for _, gv := range gvs {
		h := m.versions.lookup(gv)
		if h == nil { // no longer watched
			continue
		}
		before, after := *h, h.record(o)
		*h = after
		if before.probed() && before.up != after.up {
			flipped = true
		}
		news = news || before.last.digest != 0 && before.last.digest != after.last.digest
		if before.up && !after.up {
			m.fastUntil = time.Now().Add(fastRetryTime)
		}
		if verdictMayDiffer(before, after) {
			differ = append(differ, gv)
		}
	}
	if len(differ) > 0 {
		m.endWaiting()
	}
	m.mu.Unlock()
	if len(differ) > 0 {
		m.historyChanged(differ)
	}
	if o.failure == nil && m.mayHaveRestarted.Swap(false) {
		news = true
	}
	if news && m.documentsMayDiffer != nil {
		m.documentsMayDiffer()
	}
	return flipped
}

// verdictMayDiffer reports whether two histories can result in different conditions.
func verdictMayDiffer(a, b history) bool {
	if a.probed() != b.probed() || a.up != b.up || !a.last.certificateExpires.Equal(b.last.certificateExpires) {
		return true
	}
	return !b.up && a.last.failure.text("") != b.last.failure.text("")
}

func (m *monitor) roundIsDue() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !time.Now().Before(m.next)
}

// untilNext returns the time until the next round or comparison of endpoints.
func (m *monitor) untilNext() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	wait := time.Until(m.next)
	if len(m.ejected) > 0 {
		wait = min(wait, ejectedInterval)
	}
	return max(wait, time.Millisecond)
}

// scheduleRound sets the time of the next round.
func (m *monitor) scheduleRound() {
	m.mu.Lock()
	defer m.mu.Unlock()
	failures := 0
	for _, h := range m.versions {
		if n := h.failures; n > 0 && (failures == 0 || n < failures) {
			failures = n
		}
	}
	wait := jitter(probeInterval(failures, time.Now().Before(m.fastUntil)))
	m.next = time.Now().Add(wait)
}

// monitorSet contains the running monitors, by backend.
type monitorSet struct {
	timers  *run.TimerQueue
	mu      sync.RWMutex // guards running
	running map[*transport.Backend]*scheduledMonitor
}

type scheduledMonitor struct {
	*monitor
	task *run.ScheduledTask
}

func newMonitorSet() monitorSet {
	return monitorSet{timers: run.NewTimerQueue(), running: make(map[*transport.Backend]*scheduledMonitor)}
}

func (m *monitorSet) lookup(b *transport.Backend) (*monitor, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	r, ok := m.running[b]
	if !ok {
		return nil, false
	}
	return r.monitor, true
}

// start schedules a monitor until it is dropped.
func (m *monitorSet) start(b *transport.Backend, mon *monitor) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running[b] = &scheduledMonitor{monitor: mon, task: mon.start(m.timers)}
}

// drop drops the monitor of a backend. Its last probe ends with its context; the timer queue waits for it.
func (m *monitorSet) drop(b *transport.Backend) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.running[b]; ok {
		r.task.Remove()
		delete(m.running, b)
	}
}

// dropAll drops all monitors.
func (m *monitorSet) dropAll() {
	for b := range m.snapshot() {
		m.drop(b)
	}
}

// snapshot returns the current monitors.
func (m *monitorSet) snapshot() map[*transport.Backend]*monitor {
	m.mu.RLock()
	defer m.mu.RUnlock()
	out := make(map[*transport.Backend]*monitor, len(m.running))
	for b, r := range m.running {
		out[b] = r.monitor
	}
	return out
}

const (
	// healthyInterval is the time between the rounds of a backend while its probes succeed.
	healthyInterval = 30 * time.Second
	// trafficWindow is how long an answered request replaces a round.
	trafficWindow = 10 * time.Second
	// maxTrafficTrust is how long answered requests alone may replace rounds.
	maxTrafficTrust = 5 * time.Minute

	minRetry = 500 * time.Millisecond
	// maxRetry is the maximum delay with which the return of a backend is detected after a long outage. kube-apiserver's is
	// 30 s, but often shorter in practice: one of its hanging probes is answered as soon as the backend returns.
	maxRetry = 5 * time.Second
	// fastRetry limits the backoff for fastRetryTime after a backend went down or changed, so that its return is detected
	// within about a second: most outages are restarts.
	fastRetry     = time.Second
	fastRetryTime = 30 * time.Second

	// minProbeGap is the minimum time between two rounds, however many requests fail.
	minProbeGap = 250 * time.Millisecond

	// jitterFraction is the jitter of intervals, so that backends and replicas do not probe in step.
	jitterFraction = 0.15
)

// probeInterval returns the time until the next round, without jitter. failures is the lowest count of consecutive failures
// among the failing group-versions, or 0 if none fails.
func probeInterval(failures int, fast bool) time.Duration {
	if failures == 0 {
		return healthyInterval
	}
	wait := maxRetry
	if doublings := failures - 1; doublings < 4 { // doubling 0.5 s four times exceeds the maximum
		wait = min(minRetry<<doublings, maxRetry)
	}
	if fast {
		wait = min(wait, fastRetry)
	}
	return wait
}

func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 - jitterFraction + 2*jitterFraction*rand.Float64()))
}
