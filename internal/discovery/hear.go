package discovery

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/discovery/remote"
)

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
