package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/metrics"
	"portico.dev/internal/transport"
)

const (
	// maxConcurrentBodies limits the memory of responses while they are read, to this multiple of maxBody.
	maxConcurrentBodies = 8
	// The pause between two snapshots is at least minPause, and pauseFactor times the duration of the last one, at most
	// maxPause. Flapping verdicts, or a thousand APIServices that are registered one after the other, must not occupy a
	// core.
	minPause    = 20 * time.Millisecond
	maxPause    = 200 * time.Millisecond
	pauseFactor = 20
)

// Config is the configuration of a Merger. All fields except BackendEvents, Address and Metrics are required.
type Config struct {
	// Local returns the resources that this server serves itself. It is called often and must not block.
	Local func() Local
	// LocalChanged returns a channel that is closed at the next change of Local.
	LocalChanged func() <-chan struct{}
	// Routes returns the current table, in the order of legacy discovery. Changed returns a channel that is closed when the
	// table is replaced.
	Routes  func() remote.Table
	Changed func() <-chan struct{}
	// Storage keeps the last resources of backends across restarts.
	Storage remote.LastKnown
	// BackendEvents reports backends that may serve different documents than before, and receives events about backends
	// that serve different resources. May be nil.
	BackendEvents *transport.Events
	// Address is host:port of this server, which /api reports to clients.
	Address string
	Metrics *metrics.Discovery
	Logger  *zap.Logger
}

// Merger makes the merged discovery documents and serves them.
type Merger struct {
	cfg     Config
	log     *zap.Logger
	metrics *metrics.Discovery
	encoder *encoder
	fetcher *remote.Fetcher
	// The lock of records also guards interner.
	records  *remote.Collector[record]
	interner *interner

	current atomic.Pointer[Snapshot]
	ready   chan struct{}
}

// New returns a Merger that has not read or polled anything yet.
func New(cfg Config) (*Merger, error) {
	if cfg.Local == nil || cfg.LocalChanged == nil || cfg.Routes == nil || cfg.Changed == nil || cfg.Storage == nil || cfg.Logger == nil {
		return nil, errors.New("discovery: Local, LocalChanged, Routes, Changed, Storage and Logger are required")
	}
	if cfg.Metrics == nil {
		cfg.Metrics = metrics.NewDiscovery(prometheus.NewRegistry())
	}
	encoder, err := newEncoder()
	if err != nil {
		return nil, err
	}
	m := &Merger{
		cfg:      cfg,
		log:      cfg.Logger,
		metrics:  cfg.Metrics,
		encoder:  encoder,
		fetcher:  remote.NewFetcher(maxConcurrentBodies),
		interner: newInterner(),
		ready:    make(chan struct{}),
	}
	m.records = remote.NewCollector(remote.Config[record]{
		Routes: cfg.Routes, RoutesChanged: cfg.Changed, LocalChanged: cfg.LocalChanged, Storage: cfg.Storage,
		Decode: decodeRecord, Adopt: m.adopt, Merge: m.merge, PollNow: mayServeOther, NewPoll: m.newPoll, Publish: m.publish,
		BackendEvents: cfg.BackendEvents, Polls: cfg.Metrics.Rounds, Logger: cfg.Logger,
	})
	return m, nil
}

// Ready is closed when the first snapshot exists. It contains the local resources and the stored ones, before any backend
// has been polled.
func (m *Merger) Ready() <-chan struct{} { return m.ready }

// Current returns the current snapshot, nil before Ready.
func (m *Merger) Current() *Snapshot { return m.current.Load() }

// Changed returns a channel that is closed when a snapshot with different documents or warnings replaces the current one.
// It returns nil before Ready. Call it before calling Current.
func (m *Merger) Changed() <-chan struct{} {
	if s := m.Current(); s != nil {
		return s.replaced
	}
	return nil
}

// Run keeps the snapshot up to date until ctx ends.
func (m *Merger) Run(ctx context.Context) error { return m.records.Run(ctx) }

func mayServeOther(before, after remote.Route) bool {
	return before.Available != after.Available || before.UID != after.UID || before.Revision != after.Revision || before.Backend != after.Backend
}

// adopt keeps the record of an APIService that was deleted and recreated. The record determines whether it is still valid.
func (m *Merger) adopt(_ remote.Route, current, stored *record) *record {
	switch {
	case current != nil:
		return current
	case stored == nil:
		return &record{}
	}
	stored.last.Resources = m.interner.resources(stored.last.Resources)
	return stored
}

// merge adopts the resources that another replica accepted.
func (m *Merger) merge(r remote.Route, own, stored *record) bool {
	if r.UID != stored.last.UID || own.last != nil && equalKnown(own.last, stored.last) {
		return false
	}
	stored.last.Resources = m.interner.resources(stored.last.Resources)
	own.last, own.missing = stored.last, nil
	return true
}

// knownVersion is the newest version of a stored value that this release can read, and the version that it writes.
const knownVersion = 1

func decodeRecord(value []byte) (*record, error) {
	last := &known{}
	if err := json.Unmarshal(value, last); err != nil {
		return nil, err
	}
	if last.Version > knownVersion {
		return nil, remote.ErrNewerRelease
	}
	if err := check(last.Resources); err != nil {
		return nil, err
	}
	last.Resources = fill(last.Resources)
	return &record{last: last}, nil
}

// save stores the accepted resources of a backend.
func (m *Merger) save(name string, last *known) {
	stored := *last
	stored.Version = knownVersion
	value, err := json.Marshal(stored)
	if err != nil {
		m.log.Error("failed to encode the last-known discovery document", zap.String("apiservice", name), zap.Error(err))
		return
	}
	m.records.Save(name, value)
}

// newPoll returns the Poll of one backend.
func (m *Merger) newPoll(b remote.Backend) remote.Poll {
	s := &session{}
	return func(ctx context.Context) (bool, error) {
		var wanted []schema.GroupVersion
		m.records.Each(b, func(r remote.Route, _ *record) {
			if !slices.Contains(wanted, r.GroupVersion) { // an APIService and an APIRoute may both have it
				wanted = append(wanted, r.GroupVersion)
			}
		})
		fetched := fetchAll(ctx, m.fetcher, b, wanted, s)
		if ctx.Err() != nil {
			return false, ctx.Err() // the process is stopping; the result is not about the backend
		}
		changed, err := m.update(b, fetched, s)
		if backend, ok := b.(*transport.Backend); ok && changed && m.cfg.BackendEvents != nil {
			m.cfg.BackendEvents.ResourcesChanged(backend)
		}
		return changed, err
	}
}

// update processes a backend's responses of one poll, and reports whether the resources of a group-version changed.
func (m *Merger) update(b remote.Backend, fetched map[schema.GroupVersion]result, s *session) (changed bool, err error) {
	var failures []error
	unconfirmed := false
	m.records.Each(b, func(r remote.Route, rec *record) {
		if a, asked := fetched[r.GroupVersion]; asked { // the route may be newer than the poll
			if a.err != nil {
				failures = append(failures, a.err)
			}
			changed = m.apply(r, rec, a) || changed
		}
		unconfirmed = unconfirmed || len(rec.missing) > 0
		// The session shares the slice of the record if both are equal, which is nearly always the case.
		if found, ok := s.found[r.GroupVersion]; ok && rec.last != nil && equality.Semantic.DeepEqual(found, rec.last.Resources) {
			s.found[r.GroupVersion] = rec.last.Resources
		}
	})
	if err = errors.Join(failures...); err == nil && unconfirmed {
		err = remote.ErrUnconfirmed
	}
	return changed, err
}

// apply processes the result of one group-version and reports whether its resources changed. The caller must hold the
// collector's lock. apply does no I/O.
func (m *Merger) apply(r remote.Route, rec *record, a result) bool {
	freshness, reason := rec.freshness(r)
	changed := false
	if a.err != nil {
		rec.fail(publicReason(a.err))
	} else if changed = rec.update(r, fill(a.resources), time.Now()); changed {
		rec.last.Resources = m.interner.resources(rec.last.Resources)
		m.save(r.APIService, rec.last)
	}
	now, why := rec.freshness(r)
	level, overdue := zapcore.InfoLevel, false
	if a.err != nil || now == apidiscoveryv2.DiscoveryFreshnessStale {
		level, overdue = rec.startup.Failed(time.Now())
	} else {
		rec.startup.Succeeded()
	}
	differs := changed || now != freshness || why != reason
	if differs || overdue {
		m.logChange(level, r, now, why, a.err)
	}
	if differs {
		m.records.Announce()
	}
	return changed
}

// publish makes a snapshot, replaces the current one, and returns the minimum time until the next call.
func (m *Merger) publish() time.Duration {
	start := time.Now()
	local := m.cfg.Local()
	var gvs []GroupVersion
	var synced bool
	m.records.Read(func(table remote.Table, records map[string]*record) {
		gvs, synced = mergeGroupVersions(local, table, records), table.Synced
	})
	before := m.current.Load()
	next, err := newSnapshot(m.encoder, before, gvs, synced, m.cfg.Address)
	if err != nil {
		m.log.Error("failed to build the discovery documents; the previous ones stay in use", zap.Error(err))
		return minPause
	}
	if next.sameDocuments(before) && next.sameWarnings(before) {
		next.replaced = before.replaced // nothing changed for the callers that wait
	}
	m.current.Store(next)
	if before == nil {
		close(m.ready)
	} else if next.replaced != before.replaced {
		close(before.replaced)
	}
	took := time.Since(start)
	m.metrics.Aggregations.Inc()
	m.metrics.BuildSeconds.Observe(took.Seconds())
	m.metrics.Stale.Set(float64(next.stale()))
	return min(max(minPause, pauseFactor*took), max(maxPause, 4*took))
}

// logChange logs a change of a group-version. level is the level of a failure.
func (m *Merger) logChange(level zapcore.Level, r remote.Route, now apidiscoveryv2.DiscoveryFreshness, why string, err error) {
	fields := []zap.Field{zap.String("apiservice", r.APIService), zap.String("freshness", string(now))}
	switch {
	case err != nil:
		m.log.Log(level, "discovery failed", append(fields, zap.Error(err))...)
	case now == apidiscoveryv2.DiscoveryFreshnessStale:
		m.log.Log(level, "discovery is stale", append(fields, zap.String("reason", why))...)
	case why != "": // the known resources stand, and contain nothing that a controller could miss
		m.log.Info("discovery not received", append(fields, zap.String("reason", why))...)
	default:
		m.log.Info("discovery changed", fields...)
	}
}

// publicReason returns the text of an error without information that only logs may contain: transport errors contain pod
// addresses.
func publicReason(err error) string {
	if errors.Is(err, remote.ErrUnreachable) {
		return "the backend's discovery document cannot be fetched"
	}
	return err.Error()
}
