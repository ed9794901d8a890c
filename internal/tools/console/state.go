package console

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/routes/v1alpha1"
	"portico.dev/internal/transport"
)

// Sections that are sent as a whole when they have changed. The list of APIServices is sent row by row.
const (
	sectionOverview   = "overview"
	sectionBackends   = "backends"
	sectionTimeline   = "timeline"
	sectionNamespaces = "namespaces"
	sectionDebts      = "debts"
	sectionRoutes     = "routes"
	sectionJobs       = "jobs"
	sectionDrills     = "drills"
	sectionAudit      = "audit"
	sectionTick       = "tick"
)

const (
	// replicaMemory is how long the state of a replica stays valid. Behind a load balancer, each request may reach
	// another replica.
	replicaMemory = time.Minute
	// maxReplicas bounds the number of stored replicas.
	maxReplicas = 64
	// maxBackends bounds the backends of the section.
	maxBackends = 24
	// listPoints and detailPoints are the lengths of charts.
	listPoints, detailPoints = 90, maxPoints
)

// state is the collected data. Sources update it, and streams send the changes.
type state struct {
	mu      sync.Mutex // guards the fields below
	changed chan struct{}

	overview overview
	sources  map[string]sourceStatus

	objects  map[string]*apiregistrationv1.APIService
	rows     map[string]*row
	versions map[string]int // version of the latest change of each row
	version  int
	listed   bool // true after the first list of APIServices

	// replicas holds the state of front doors by name. gateways holds the verdicts that gateway replicas published.
	replicas map[string]*replica
	gateways map[string]map[string]gatewayVerdict // by replica, then by APIService
	samples  map[string]*sample                   // the latest metrics, by replica

	charts   *charts
	timeline timeline
	routes   []v1alpha1.APIRoute

	sections map[string]section
}

type replica struct {
	at          time.Time
	apiServices map[string]*apiservice.APIServiceState
	backends    []apiservice.BackendState
}

type sample struct {
	at     time.Time
	counts map[pool]*counts
	deltas map[pool]between
}

// gatewayVerdict is the verdict that a gateway replica publishes in its Lease.
type gatewayVerdict struct {
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

type section struct {
	version int
	body    []byte
	content any // the published value, for the terminal; guarded by mu
}

func newState() *state {
	s := &state{
		changed: make(chan struct{}), sources: map[string]sourceStatus{}, objects: map[string]*apiregistrationv1.APIService{}, rows: map[string]*row{},
		versions: map[string]int{}, replicas: map[string]*replica{}, gateways: map[string]map[string]gatewayVerdict{}, samples: map[string]*sample{},
		charts: newCharts(), sections: map[string]section{},
	}
	s.overview.Kind = "API server"
	return s
}

// update changes the state and wakes the streams.
func (s *state) update(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *state) read(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// publish requires mu. An unchanged section keeps its version.
func (s *state) publish(name string, content any) {
	body, err := json.Marshal(content)
	if err != nil {
		body = []byte(`{}`) // only a non-finite number, which value excludes
	}
	was := s.sections[name]
	if string(was.body) != string(body) {
		s.sections[name] = section{was.version + 1, body, content}
	}
}

// report requires mu.
func (s *state) report(status sourceStatus) {
	s.sources[status.Name] = status
	s.publishOverview()
}

func (s *state) publishOverview() {
	s.overview.Sources = slices.SortedFunc(maps.Values(s.sources), func(a, b sourceStatus) int { return strings.Compare(a.Name, b.Name) })
	s.publish(sectionOverview, s.overview)
}

// setAPIServices stores a list of APIServices.
func (s *state) setAPIServices(list []apiregistrationv1.APIService, now time.Time) {
	there := make(map[string]bool, len(list))
	moved := false
	for i := range list {
		o := &list[i]
		o.ManagedFields = nil
		there[o.Name] = true
		before, known := s.objects[o.Name]
		var was []condition
		if known {
			was = conditionsOf(before)
		}
		s.objects[o.Name] = o
		if o.Spec.Service == nil {
			continue
		}
		if s.listed && !known {
			moved = s.timeline.add(moment{At: now, Kind: "condition", Object: "APIService", Name: o.Name, What: "created", To: "created"}) || moved
		}
		if s.timeline.changed("APIService", o.Name, was, conditionsOf(o), known, now) {
			moved = true
		}
	}
	for name, o := range s.objects {
		if !there[name] {
			delete(s.objects, name)
			if o.Spec.Service != nil {
				moved = s.timeline.add(moment{At: now, Kind: "condition", Object: "APIService", Name: name, What: "deleted", To: "deleted", Bad: true}) || moved
			}
		}
	}
	s.listed = true
	if moved {
		s.publishTimeline()
	}
	s.makeRows(now)
}

func (s *state) publishTimeline() { s.publish(sectionTimeline, s.timeline.moments) }

// makeRows derives the list of APIServices from the objects and all verdicts. Rows that differ get a new version.
func (s *state) makeRows(now time.Time) {
	s.version++
	for name, o := range s.objects {
		r := newRow(o, s.overview.Kind)
		if r.Service != "" {
			r.Verdicts = s.verdictsOf(name, r.Gateway != "", now)
		}
		r.Degraded = r.isDegraded()
		r.Rank = r.rank()
		if was := s.rows[name]; was == nil || !sameRow(was, r) {
			s.rows[name], s.versions[name] = r, s.version
		}
	}
	for name := range s.rows {
		if s.objects[name] == nil {
			delete(s.rows, name)
			delete(s.versions, name)
		}
	}
}

// verdictsOf returns the verdicts of the replicas. A replica's own report takes precedence over a report by another
// replica.
func (s *state) verdictsOf(name string, gateway bool, now time.Time) []verdict {
	front := map[string]verdict{}
	for _, r := range s.replicas {
		if as := r.apiServices[name]; as != nil && now.Sub(r.at) < replicaMemory {
			for other, status := range as.Elsewhere {
				front[other] = verdict{Replica: other, Of: "front door", State: stateOf(status)}
			}
		}
	}
	for id, r := range s.replicas {
		if as := r.apiServices[name]; as != nil && now.Sub(r.at) < replicaMemory {
			front[id] = verdict{Replica: id, Of: "front door", State: stateOf(as.Available), Reason: as.Reason, Message: causeFirst(as.Message)}
		}
	}
	out := slices.Collect(maps.Values(front))
	for id, verdicts := range s.gateways {
		if v, ok := verdicts[name]; ok && gateway {
			out = append(out, verdict{Replica: id, Of: "gateway", State: stateOf(v.Status), Reason: v.Reason, Message: causeFirst(v.Message)})
		}
	}
	return sortVerdicts(out)
}

func sameRow(a, b *row) bool {
	return a.State == b.State && a.Service == b.Service && a.Gateway == b.Gateway && a.Since.Equal(b.Since) && a.Reason == b.Reason && a.Message == b.Message &&
		slices.Equal(a.Hops, b.Hops) && slices.Equal(a.Verdicts, b.Verdicts) && a.pool == b.pool && a.gatewayPool == b.gatewayPool && slices.EqualFunc(a.Notes, b.Notes, func(x, y condition) bool {
		return x.Type == y.Type && x.Status == y.Status && x.Reason == y.Reason && x.Message == y.Message && x.Since.Equal(y.Since)
	})
}

// setFrontDoor stores the debug state of a front door replica.
func (s *state) setFrontDoor(d *apiservice.DebugState, now time.Time) {
	name := cmp.Or(d.Replica, "front door")
	r := &replica{at: now, apiServices: make(map[string]*apiservice.APIServiceState, len(d.APIServices)), backends: d.Backends}
	moved := false
	for i := range d.APIServices {
		a := &d.APIServices[i]
		r.apiServices[a.Name] = a
		for _, tr := range a.Transitions {
			moved = s.timeline.add(moment{
				At: tr.Time, Kind: "verdict", Object: "APIService", Name: a.Name, What: name, From: string(tr.From), To: string(tr.To),
				Reason: tr.Reason, Message: causeFirst(tr.Message), Bad: tr.To != "True", Good: tr.To == "True",
			}) || moved
		}
	}
	for id, other := range s.replicas {
		if now.Sub(other.at) >= replicaMemory {
			delete(s.replicas, id)
		}
	}
	if len(s.replicas) < maxReplicas || s.replicas[name] != nil {
		s.replicas[name] = r
	}
	for i := range d.Backends {
		b := &d.Backends[i]
		p := poolOf(b)
		s.charts.set(chartKey{name, p, "", "inFlight"}, float64(b.InFlight))
		ejections := 0
		for _, e := range b.Endpoints {
			ejections += e.Ejections
			s.charts.set(chartKey{name, p, e.Address, "inFlight"}, float64(e.InFlight))
			s.charts.set(chartKey{name, p, e.Address, "ejections"}, float64(e.Ejections))
		}
		s.charts.set(chartKey{name, p, "", "ejections"}, float64(ejections))
		slowest := 0.0
		for _, p := range b.Probes {
			slowest = max(slowest, p.Milliseconds)
		}
		if len(b.Probes) > 0 {
			s.charts.set(chartKey{name, p, "", "probe"}, slowest)
		}
	}
	if moved {
		s.publishTimeline()
	}
	s.makeRows(now)
}

// setMetrics stores the metrics of a front door or gateway replica. Only front doors report endpoints.
func (s *state) setMetrics(replica string, all map[pool]*counts, now time.Time, detailed bool) {
	was := s.samples[replica]
	if was == nil && len(s.samples) >= maxReplicas {
		return
	}
	next := &sample{at: now, counts: all, deltas: make(map[pool]between, len(all))}
	for p, c := range all {
		if was == nil {
			continue
		}
		d := c.since(was.counts[p], now.Sub(was.at))
		next.deltas[p] = d
		s.charts.set(chartKey{replica, p, "", "rate"}, d.rate)
		s.charts.set(chartKey{replica, p, "", "failures"}, d.failures)
		s.charts.set(chartKey{replica, p, "", "median"}, d.median)
		s.charts.set(chartKey{replica, p, "", "slowest"}, d.slowest)
		if !detailed {
			s.charts.set(chartKey{replica, p, "", "inFlight"}, c.inFlight)
			s.charts.set(chartKey{replica, p, "", "ejections"}, c.ejections)
		}
	}
	s.samples[replica] = next
	for id, other := range s.samples {
		if now.Sub(other.at) >= replicaMemory {
			delete(s.samples, id)
		}
	}
}

// backendsOf returns the selected backends of all replicas.
func (s *state) backendsOf(selected pool, points int) []backend {
	var out []backend
	for _, id := range slices.Sorted(maps.Keys(s.replicas)) {
		for i := range s.replicas[id].backends {
			if b := &s.replicas[id].backends[i]; selected.matches(poolOf(b)) {
				out = append(out, s.describe(id, b))
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.samples)) {
		if s.replicas[id] != nil {
			continue
		}
		for p, c := range s.samples[id].counts {
			if selected.matches(p) {
				out = append(out, backend{Name: p.service, pool: p, Replica: id, InFlight: c.inFlight, Ejected: c.ejected, Ejections: c.ejections, Trouble: c.ejected > 0})
			}
		}
	}
	weight := func(b *backend) float64 {
		rate := latest(s.charts.get(chartKey{b.Replica, b.pool, "", "rate"}, 5))
		if rate != rate { // true for NaN
			rate = 0
		}
		return b.InFlight + float64(rate)
	}
	slices.SortStableFunc(out, func(a, b backend) int {
		if a.Trouble != b.Trouble {
			return cmp.Compare(btoi(b.Trouble), btoi(a.Trouble))
		}
		return cmp.Or(cmp.Compare(weight(&b), weight(&a)), strings.Compare(a.Name, b.Name), strings.Compare(a.Replica, b.Replica), strings.Compare(a.pool.trust, b.pool.trust))
	})
	nameTrust(out)
	total := len(out)
	if len(out) > maxBackends {
		out = out[:maxBackends]
	}
	for i := range out {
		b := &out[i]
		get := func(measure string) []value { return s.charts.get(chartKey{b.Replica, b.pool, "", measure}, points) }
		b.Series = series{
			InFlight: get("inFlight"), Rate: get("rate"), Failures: get("failures"), Median: get("median"), Slowest: get("slowest"), Probe: get("probe"),
			Ejections: get("ejections"),
		}
		for j := range b.Endpoints {
			e := &b.Endpoints[j]
			e.Series.InFlight = s.charts.get(chartKey{b.Replica, b.pool, e.Address, "inFlight"}, points)
			e.Series.Ejections = s.charts.get(chartKey{b.Replica, b.pool, e.Address, "ejections"}, points)
		}
	}
	if (selected == pool{}) {
		s.publish(sectionBackends, backends{Total: total, Shown: append([]backend{}, out...), Points: points, Span: s.span(points)})
	}
	return out
}

// span returns the time that charts of n points show, in seconds. Without a front door, the gateway's samples drive them.
func (s *state) span(n int) float64 {
	planned := s.sources[sourceFrontDoor]
	if planned.Missing != "" {
		planned = s.sources[sourceGateway]
	}
	return s.charts.span(n, planned.Every)
}

func poolOf(b *apiservice.BackendState) pool { return pool{b.Name, b.Trust} }

// nameTrust sets Trust of the backends whose Service has several pools.
func nameTrust(all []backend) {
	first := make(map[string]string, len(all))
	several := map[string]bool{}
	for i := range all {
		p := all[i].pool
		if trust, seen := first[p.service]; seen && trust != p.trust {
			several[p.service] = true
		}
		first[p.service] = p.trust
	}
	for i := range all {
		if b := &all[i]; several[b.Name] {
			b.Trust = trustText(b.pool.trust)
		}
	}
}

// trustText describes how the certificates of a pool are verified.
func trustText(trust string) string {
	switch trust {
	case transport.Trust(nil, false):
		return "system roots"
	case transport.Trust(nil, true):
		return "not verified"
	}
	return "caBundle " + trust
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// maxEndpoints bounds the endpoints shown for a backend. Failing endpoints come first.
const maxEndpoints = 16

func (s *state) describe(replica string, b *apiservice.BackendState) backend {
	out := backend{Name: b.Name, pool: poolOf(b), Replica: replica, InFlight: float64(b.InFlight), Limit: b.Limit}
	for _, e := range b.Endpoints {
		shown := endpoint{
			Address: e.Address, Zone: e.Zone, State: e.State, InFlight: e.InFlight, Ejections: e.Ejections, Protocol: e.Protocol, LastFailure: causeFirst(e.LastFailure),
		}
		if e.LastFailureAt != nil {
			shown.FailedAt = *e.LastFailureAt
		}
		if e.EjectedUntil != nil {
			shown.Until = *e.EjectedUntil
		}
		if e.CertificateExpires != nil {
			shown.CertExpires = *e.CertificateExpires
		}
		if e.State != "well" {
			out.Ejected++
			out.Trouble = true
		}
		out.Ejections += float64(e.Ejections)
		out.Endpoints = append(out.Endpoints, shown)
	}
	for _, p := range b.Probes {
		out.Trouble = out.Trouble || !p.Up && p.Failures > 0
	}
	slices.SortStableFunc(out.Endpoints, func(a, b endpoint) int {
		return cmp.Or(cmp.Compare(btoi(a.State == "well"), btoi(b.State == "well")), strings.Compare(a.Address, b.Address))
	})
	if len(out.Endpoints) > maxEndpoints {
		out.Endpoints = out.Endpoints[:maxEndpoints]
	}
	return out
}
