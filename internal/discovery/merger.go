package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/metrics"
)

const (
	// bodiesAtOnce bounds the memory that answers of backends take while they are being read: that many times maxBody.
	bodiesAtOnce = 8
	// localPoll is how often Local is compared with what it was when nothing announces a change; upstream's period.
	localPoll = time.Second
	// minRest between two snapshots, or restShare times what the last one took: a storm of flips must not take a core.
	minRest   = 20 * time.Millisecond
	restShare = 4
)

// Config is what a Merger is made of. The first five are required.
type Config struct {
	// Local returns what this server serves itself. It is called often and must not block.
	Local func() Local
	// Routes returns the table of the moment, in the order of legacy discovery; Changed a channel that is closed when the
	// next one is there.
	Routes  func() remote.Table
	Changed func() <-chan struct{}
	// Keep survives restarts.
	Keep   LastKnown
	Logger *zap.Logger

	// LocalChanged returns a channel that is closed at the next change of Local. Nil: Local is compared every second.
	LocalChanged func() <-chan struct{}
	// Address is host:port of this server, which /api tells to clients.
	Address string
	// Metrics may be nil.
	Metrics *metrics.Discovery
}

// Merger makes the merged documents and serves them.
type Merger struct {
	cfg     Config
	log     *zap.Logger
	metrics *metrics.Discovery
	encoder *encoder
	fetcher *remote.Fetcher
	keeper  *keeper
	rounds  *remote.Rounds

	current atomic.Pointer[Snapshot]
	ready   chan struct{}
	// news says that a worker learned something that can be seen.
	news chan struct{}

	// mu protects what workers and the loop share. It is never held during I/O or encoding.
	mu          sync.Mutex
	table       remote.Table
	testimonies map[string]*testimony // by APIService, one for each remote route
	kept        map[string]*known     // what was loaded at start and has not been claimed by a route yet
	pool        *pool
}

// New returns a Merger that has not read or asked anything yet.
func New(cfg Config) (*Merger, error) {
	if cfg.Local == nil || cfg.Routes == nil || cfg.Changed == nil || cfg.Keep == nil || cfg.Logger == nil {
		return nil, errors.New("discovery: Local, Routes, Changed, Keep and Logger are required")
	}
	if cfg.Metrics == nil {
		cfg.Metrics = metrics.NewDiscovery(prometheus.NewRegistry())
	}
	encoder, err := newEncoder()
	if err != nil {
		return nil, err
	}
	m := &Merger{
		cfg:         cfg,
		log:         cfg.Logger,
		metrics:     cfg.Metrics,
		encoder:     encoder,
		fetcher:     remote.NewFetcher(bodiesAtOnce),
		keeper:      newKeeper(cfg.Keep, cfg.Logger),
		ready:       make(chan struct{}),
		news:        make(chan struct{}, 1),
		testimonies: map[string]*testimony{},
		pool:        newPool(),
	}
	m.rounds = remote.NewRounds(m.visitor)
	return m, nil
}

// Ready is closed when the first snapshot is there: made of what is served here and what was kept, without having asked
// any backend.
func (m *Merger) Ready() <-chan struct{} { return m.ready }

// Current returns the snapshot of the moment, nil before Ready.
func (m *Merger) Current() *Snapshot { return m.current.Load() }

// Changed returns a channel that is closed when a snapshot with other documents takes the place of the current one; nil
// before Ready. Take it before calling Current.
func (m *Merger) Changed() <-chan struct{} {
	if s := m.Current(); s != nil {
		return s.replaced
	}
	return nil
}

// Reask tells that a backend may serve something else than before: it is asked soon, but not more often than once a minute.
// It does not block.
func (m *Merger) Reask(b remote.Backend) { m.rounds.Reask(b) }

// Run keeps the snapshot up to date until ctx ends.
func (m *Merger) Run(ctx context.Context) error {
	kept, err := m.keeper.load(ctx)
	if err != nil {
		return nil // ctx ended: nothing else ends the loading
	}
	m.kept = kept

	ctx, cancel := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { m.keeper.Run(ctx) })
	keeping.Go(func() { m.keeper.Follow(ctx, m.overhear) })
	keeping.Go(func() { m.rounds.Run(ctx) })
	defer keeping.Wait()
	defer cancel()

	for ctx.Err() == nil {
		// Taken before what they announce is read: a change in between is seen again rather than missed.
		changed, localChanged := m.cfg.Changed(), m.localChanged()
		m.follow(m.cfg.Routes())
		local := m.cfg.Local()
		rest := m.publish(local)
		sleep(ctx, rest)
		m.await(ctx, changed, localChanged, local)
	}
	return nil
}

// await returns when a snapshot made now could differ from the last.
func (m *Merger) await(ctx context.Context, changed, localChanged <-chan struct{}, local Local) {
	var poll <-chan time.Time
	if localChanged == nil {
		ticker := time.NewTicker(localPoll)
		defer ticker.Stop()
		poll = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			return
		case <-localChanged:
			return
		case <-m.news:
			return
		case <-poll:
			if !reflect.DeepEqual(local, m.cfg.Local()) {
				return
			}
		}
	}
}

func (m *Merger) localChanged() <-chan struct{} {
	if m.cfg.LocalChanged == nil {
		return nil
	}
	return m.cfg.LocalChanged()
}

// follow takes a new table over: backends that are new, or whose routes are not what they were, are asked at once.
func (m *Merger) follow(table remote.Table) {
	m.mu.Lock()
	before := map[schema.GroupVersion]remote.Route{}
	for _, r := range m.table.Routes {
		before[r.GroupVersion] = r
	}
	m.table = table
	m.adopt(table)
	m.mu.Unlock()

	for _, r := range table.Routes {
		if r.Local || r.Backend == nil {
			continue
		}
		// A backend that is new is not woken: its first round comes by itself.
		if old, ok := before[r.GroupVersion]; !ok || asksAgain(old, r) {
			m.rounds.Wake(r.Backend)
		}
	}
	m.rounds.Keep(table.Backends())
}

func asksAgain(old, r remote.Route) bool {
	return old.Available != r.Available || old.UID != r.UID || old.Revision != r.Revision || old.Backend != r.Backend
}

// adopt gives every remote route its testimony and drops those that no route needs. While the table is not synced, a
// registration that is not in it may still come.
func (m *Merger) adopt(table remote.Table) {
	wanted := map[string]bool{}
	for _, r := range table.Routes {
		if r.Local {
			continue
		}
		wanted[r.APIService] = true
		if m.testimonies[r.APIService] == nil {
			m.testimonies[r.APIService] = &testimony{last: m.kept[r.APIService]}
			if last := m.kept[r.APIService]; last != nil {
				last.Resources = m.pool.pack(last.Resources)
			}
			delete(m.kept, r.APIService)
		}
	}
	for name := range m.testimonies {
		if !wanted[name] {
			delete(m.testimonies, name)
			m.keeper.Forget(name)
		}
	}
	if !table.Synced {
		return
	}
	for name := range m.kept {
		m.keeper.Forget(name)
	}
	m.kept = nil
}

// publish makes a snapshot, puts it in the place of the one before, and says how long to rest before the next.
func (m *Merger) publish(local Local) time.Duration {
	began := time.Now()
	m.mu.Lock()
	gvs := merge(local, m.table, m.testimonies)
	synced := m.table.Synced
	m.mu.Unlock()

	before := m.current.Load()
	next, err := newSnapshot(m.encoder, before, gvs, synced, m.cfg.Address)
	if err != nil {
		m.log.Error("cannot make the discovery documents; the ones before stay", zap.Error(err))
		return minRest
	}
	if next.says(before) {
		next.replaced = before.replaced // whoever waits for a change has not seen one
	}
	m.current.Store(next)
	if before == nil {
		close(m.ready)
	} else if next.replaced != before.replaced {
		close(before.replaced)
	}
	took := time.Since(began)
	m.metrics.Aggregations.Inc()
	m.metrics.BuildSeconds.Observe(took.Seconds())
	m.metrics.Stale.Set(float64(next.stale()))
	return max(minRest, restShare*took)
}

func (m *Merger) announce() {
	select {
	case m.news <- struct{}{}:
	default: // the loop has not yet got to the one before; it will see this as well
	}
}

func (m *Merger) tell(r remote.Route, now apidiscoveryv2.DiscoveryFreshness, why string, err error) {
	fields := []zap.Field{zap.String("apiservice", r.APIService), zap.String("freshness", string(now))}
	switch {
	case err != nil:
		m.log.Warn("discovery failed", append(fields, zap.Error(err))...)
	case now == apidiscoveryv2.DiscoveryFreshnessStale:
		m.log.Warn("discovery is stale", append(fields, zap.String("reason", why))...)
	case why != "": // what is known stands, and holds nothing that could be missed
		m.log.Info("discovery not heard", append(fields, zap.String("reason", why))...)
	default:
		m.log.Info("discovery changed", fields...)
	}
}

// publicReason is an error without what only logs may say: addresses of pods are in what a transport reports.
func publicReason(err error) string {
	if errors.Is(err, remote.ErrUnreachable) {
		return "the backend's discovery document cannot be fetched"
	}
	return err.Error()
}

// visitor returns the rounds with one backend.
func (m *Merger) visitor(b remote.Backend) remote.Visit {
	v := &visit{}
	return func(ctx context.Context) (bool, error) {
		heard := ask(ctx, m.fetcher, b, m.wantedFrom(b), v)
		if ctx.Err() != nil {
			return false, ctx.Err() // we are stopping: that says nothing about the backend
		}
		news, err := m.learn(b, heard)
		m.forgetTwice(b, v)
		if err != nil {
			m.metrics.Rounds.WithLabelValues("failed").Inc()
		} else {
			m.metrics.Rounds.WithLabelValues("ok").Inc()
		}
		if err == nil && m.doubts(b) {
			err = errDoubtful
		}
		return news, err
	}
}

// errDoubtful is a round whose answer is not believed yet. The next one comes sooner then, twice as late each time like
// after a failure: however long a backend leaves something out, it is believed again after no more than as long once more.
var errDoubtful = errors.New("the backend leaves out what it served before")

// doubts reports whether something that the backend left out is waiting to be confirmed.
func (m *Merger) doubts(b remote.Backend) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.table.By(b), func(r remote.Route) bool {
		t := m.testimonies[r.APIService]
		return t != nil && len(t.missing) > 0
	})
}

// forgetTwice lets go of what a visit remembers where the same is known anyway, which is nearly always and everywhere.
func (m *Merger) forgetTwice(b remote.Backend, v *visit) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.table.By(b) {
		found, remembered := v.found[r.GroupVersion]
		t := m.testimonies[r.APIService]
		if remembered && t != nil && t.last != nil && equality.Semantic.DeepEqual(found, t.last.Resources) {
			v.found[r.GroupVersion] = t.last.Resources
		}
	}
}

func (m *Merger) wantedFrom(b remote.Backend) []schema.GroupVersion {
	m.mu.Lock()
	defer m.mu.Unlock()
	var wanted []schema.GroupVersion
	for _, r := range m.table.By(b) {
		wanted = append(wanted, r.GroupVersion)
	}
	return wanted
}

// learn takes in what a backend said in one round, and reports whether something is known now that was not before.
func (m *Merger) learn(b remote.Backend, heard answers) (news bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var failures []error
	for _, r := range m.table.By(b) { // a route that left this backend while it was being asked is none of its business
		a, asked := heard[r.GroupVersion]
		if !asked {
			continue
		}
		if a.err != nil {
			failures = append(failures, a.err)
		}
		if m.hear(r, a) {
			news = true
		}
	}
	return news, errors.Join(failures...)
}

// hear applies one answer and reports whether the resources are others now. The caller holds mu; everything here is memory.
func (m *Merger) hear(r remote.Route, a answer) bool {
	t := m.testimonies[r.APIService]
	freshness, reason := t.freshness(r)
	changed := false
	if a.err != nil {
		t.fail(publicReason(a.err))
	} else if changed = t.hear(r, fill(a.resources), time.Now()); changed {
		t.last.Resources = m.pool.pack(t.last.Resources)
		m.keeper.save(r.APIService, t.last)
	}
	now, why := t.freshness(r)
	if changed || now != freshness || why != reason {
		m.tell(r, now, why, a.err)
		m.announce()
	}
	return changed
}

// overhear takes in what another replica was told, so that all of them say the same whichever heard it first: rounds are a
// minute apart, and a backend may be within reach of one replica only.
func (m *Merger) overhear(name string, value []byte) {
	last, err := decodeKnown(value)
	if err != nil {
		m.log.Warn("ignoring unreadable discovery of another replica", zap.String("apiservice", name), zap.Error(err))
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.testimonies[name]
	meant := slices.ContainsFunc(m.table.Routes, func(r remote.Route) bool { return r.APIService == name && r.UID == last.UID })
	if t == nil || !meant || t.last != nil && equalKnown(t.last, last) {
		return
	}
	last.Resources = m.pool.pack(last.Resources)
	t.last, t.missing = last, nil
	m.announce()
}

// LastKnown keeps what backends last said, by the name of the APIService.
type LastKnown = remote.LastKnown

// keeper knows how a testimony is written down.
type keeper struct {
	*remote.Keeper
	log *zap.Logger
}

func newKeeper(store LastKnown, log *zap.Logger) *keeper {
	return &keeper{Keeper: remote.NewKeeper(store, log), log: log}
}

func (k *keeper) load(ctx context.Context) (map[string]*known, error) {
	values, err := k.Load(ctx)
	if err != nil {
		return nil, err
	}
	return k.decode(values), nil
}

// decode leaves out what it cannot read: the backend will say it again.
func (k *keeper) decode(values map[string][]byte) map[string]*known {
	all := map[string]*known{}
	for name, value := range values {
		last, err := decodeKnown(value)
		if err != nil {
			k.log.Warn("ignoring unreadable last-known discovery", zap.String("apiservice", name), zap.Error(err))
			continue
		}
		all[name] = last
	}
	return all
}

func decodeKnown(value []byte) (*known, error) {
	last := &known{}
	if err := json.Unmarshal(value, last); err != nil {
		return nil, err
	}
	if err := check(last.Resources); err != nil {
		return nil, err
	}
	last.Resources = fill(last.Resources)
	return last, nil
}

func (k *keeper) save(name string, last *known) {
	value, err := json.Marshal(last)
	if err != nil {
		k.log.Error("cannot encode last-known discovery", zap.String("apiservice", name), zap.Error(err))
		return
	}
	k.Save(name, value)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
