package metrics

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Backends holds the metrics of requests to extension servers and to clusters. The label backend is the
// namespace/name:port of a Service used by an APIService, or cluster/ and the name of a Cluster. The label trust tells
// apart the connection pools of a Service whose APIServices verify its certificate in different ways: "system",
// "insecure", or a fingerprint of caBundle. The series of a pool are removed when nothing uses it any more. A nil
// *Backends counts nothing.
//
// A thousand backends have fifteen thousand series. As metric objects of the Prometheus client library they would
// take ten times the memory of the counts. So only the counts are stored (Backend), and converted to series at a
// scrape.
type Backends struct {
	requests, duration, inFlight, failures, dials, ejections, ejected, limited, tunnels, broken *prometheus.Desc

	mu     sync.RWMutex // guards byPool
	byPool map[pool]*Backend
	all    []*prometheus.Desc
}

// pool holds the labels of a connection pool.
type pool struct{ backend, trust string }

// NewBackends registers the metrics of backends on reg.
func NewBackends(reg prometheus.Registerer) *Backends {
	b := &Backends{byPool: make(map[pool]*Backend)}
	desc := func(name, help string, more ...string) *prometheus.Desc {
		d := prometheus.NewDesc(name, help, append([]string{"backend", "trust"}, more...), nil)
		b.all = append(b.all, d)
		return d
	}
	b.requests = desc("portico_backend_answers_total",
		"Attempts that got response headers, by class of the HTTP code.", "class")
	b.duration = desc("portico_backend_header_duration_seconds",
		"Time from sending an attempt to its response headers.")
	b.inFlight = desc("portico_backend_requests_in_flight",
		"Requests that hold one of the backend's places.")
	b.failures = desc("portico_backend_failed_attempts_total",
		"Attempts that got no response headers, by the step that failed: dial, tls or roundtrip.", "step")
	b.dials = desc("portico_backend_connections_total", "Connections tried, by outcome.", "outcome")
	b.ejections = desc("portico_backend_ejections_total", "Endpoints taken out of use for a while.")
	b.ejected = desc("portico_backend_ejected_endpoints", "Endpoints that are out of use now, as of the last check.")
	b.limited = desc("portico_backend_limited_total",
		"Requests refused because the backend held as many as it may.")
	b.tunnels = desc("portico_backend_upgraded_connections", "Upgraded connections that are open.")
	b.broken = desc("portico_backend_broken_responses_total",
		"Responses that ended before they were complete.")
	return register(reg, b)
}

// For returns the metrics of one pool, for a user that calls Forget. It returns nil if b is nil.
func (b *Backends) For(backend, trust string) *Backend {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	p := pool{backend, trust}
	if b.byPool[p] == nil {
		b.byPool[p] = &Backend{}
	}
	b.byPool[p].users++
	return b.byPool[p]
}

// Forget removes the series of a pool after the last of its users has called it: the pool of a deleted backend may be closed after
// another one of the same name was made.
func (b *Backends) Forget(backend, trust string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	p := pool{backend, trust}
	if one := b.byPool[p]; one != nil {
		if one.users--; one.users == 0 {
			delete(b.byPool, p)
		}
	}
}

// Describe implements prometheus.Collector.
func (b *Backends) Describe(to chan<- *prometheus.Desc) {
	for _, d := range b.all {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (b *Backends) Collect(to chan<- prometheus.Metric) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for p, one := range b.byPool {
		b.collect(to, p, one)
	}
}

func (b *Backends) collect(to chan<- prometheus.Metric, p pool, one *Backend) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, n int64, more ...string) {
		to <- prometheus.MustNewConstMetric(d, kind, float64(n), append([]string{p.backend, p.trust}, more...)...)
	}
	for i := range one.classes {
		send(b.requests, prometheus.CounterValue, one.classes[i].Load(), classNames[i])
	}
	for i := range one.failures {
		send(b.failures, prometheus.CounterValue, one.failures[i].Load(), steps[i])
	}
	send(b.dials, prometheus.CounterValue, one.connected.Load(), "made")
	send(b.dials, prometheus.CounterValue, one.refused.Load(), "failed")
	send(b.ejections, prometheus.CounterValue, one.ejections.Load())
	send(b.ejected, prometheus.GaugeValue, one.ejected.Load())
	send(b.limited, prometheus.CounterValue, one.limited.Load())
	send(b.broken, prometheus.CounterValue, one.broken.Load())
	send(b.inFlight, prometheus.GaugeValue, one.inFlight.Load())
	send(b.tunnels, prometheus.GaugeValue, one.tunnels.Load())
	count, sum, buckets := one.duration.read()
	to <- prometheus.MustNewConstHistogram(b.duration, count, sum, buckets, p.backend, p.trust)
}

var (
	classNames = [...]string{"1xx", "2xx", "3xx", "4xx", "5xx"}
	// steps are the steps of an attempt that can fail.
	steps = [...]string{"dial", "tls", "roundtrip"}
)

// Backend holds the counts of one pool. A nil *Backend counts nothing.
type Backend struct {
	classes                    [len(classNames)]atomic.Int64
	failures                   [len(steps)]atomic.Int64
	connected, refused         atomic.Int64
	ejections, limited, broken atomic.Int64
	inFlight, tunnels, ejected atomic.Int64
	duration                   durations

	users int // guarded by Backends.mu
}

// Answered counts response headers.
func (b *Backend) Answered(code int, after time.Duration) {
	if b == nil {
		return
	}
	if class := code/100 - 1; class >= 0 && class < len(b.classes) {
		b.classes[class].Add(1)
	}
	b.duration.observe(after)
}

// Failed counts an attempt without response headers.
func (b *Backend) Failed(step string) {
	if b == nil {
		return
	}
	if i := slices.Index(steps[:], step); i >= 0 {
		b.failures[i].Add(1)
	}
}

// Dialled counts a connection attempt.
func (b *Backend) Dialled(ok bool) {
	switch {
	case b == nil:
	case ok:
		b.connected.Add(1)
	default:
		b.refused.Add(1)
	}
}

// Ejected counts the ejection of an endpoint.
func (b *Backend) Ejected() {
	if b != nil {
		b.ejections.Add(1)
	}
}

// SetEjected sets the number of ejected endpoints.
func (b *Backend) SetEjected(n int) {
	if b != nil {
		b.ejected.Store(int64(n))
	}
}

// Limited counts a request that was refused because no concurrency slot was free.
func (b *Backend) Limited() {
	if b != nil {
		b.limited.Add(1)
	}
}

// InFlight adds n to the number of requests that hold a concurrency slot.
func (b *Backend) InFlight(n int) {
	if b != nil {
		b.inFlight.Add(int64(n))
	}
}

// Tunnels adds n to the number of upgraded connections.
func (b *Backend) Tunnels(n int) {
	if b != nil {
		b.tunnels.Add(int64(n))
	}
}

// Broken counts a response that ended prematurely.
func (b *Backend) Broken() {
	if b != nil {
		b.broken.Add(1)
	}
}

// durationLimits are the upper bounds of the duration buckets.
var durationLimits = [...]time.Duration{
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second,
	2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
}

// durations is a histogram. within holds the count of each bucket, not cumulative, and at the end the count above the
// last limit.
type durations struct {
	within [len(durationLimits) + 1]atomic.Uint64
	sum    atomic.Int64 // nanoseconds
}

func (d *durations) observe(took time.Duration) {
	i := 0
	for i < len(durationLimits) && took > durationLimits[i] {
		i++
	}
	d.within[i].Add(1)
	d.sum.Add(int64(took))
}

// read returns the histogram in Prometheus' form: cumulative counts by upper bound in seconds.
func (d *durations) read() (count uint64, sum float64, buckets map[float64]uint64) {
	buckets = make(map[float64]uint64, len(durationLimits))
	for i, limit := range durationLimits {
		count += d.within[i].Load()
		buckets[limit.Seconds()] = count
	}
	return count + d.within[len(durationLimits)].Load(), time.Duration(d.sum.Load()).Seconds(), buckets
}

// Availability holds this replica's view of the backends of APIServices. Names and labels are kube-aggregator's. The
// label is the name of an existing APIService; its series are removed with the object. Like for Backends, only counts
// are stored, and converted to series at a scrape.
type Availability struct {
	unavailable, lost, rolledBack *prometheus.Desc

	mu     sync.Mutex // guards of
	byName map[string]*availability
}

// availability holds the counts of one APIService.
type availability struct {
	seen, unavailable bool
	lost              map[string]int // by reason; nil if never unavailable
	rolledBack        []RolledBack
}

// RolledBack identifies a backend of an APIRoute rule that receives no requests because it failed too many.
type RolledBack struct{ Rule, Backend string }

// NewAvailability registers the metrics of availability on reg.
func NewAvailability(reg prometheus.Registerer) *Availability {
	return register(reg, &Availability{
		unavailable: prometheus.NewDesc("aggregator_unavailable_apiservice",
			"1 for each APIService that this replica finds unavailable, 0 for the others.", []string{"name"}, nil),
		lost: prometheus.NewDesc("aggregator_unavailable_apiservice_total",
			"Times that this replica saw an APIService become unavailable, by reason.", []string{"name", "reason"}, nil),
		rolledBack: prometheus.NewDesc("portico_apiroute_rolled_back",
			"1 for each backend of a rule of an APIRoute whose requests go to the first backend of the rule, because it failed too many.", []string{"apiroute", "rule", "backend"}, nil),
		byName: make(map[string]*availability),
	})
}

// Set records whether an APIService is available.
func (a *Availability) Set(name string, available bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.one(name)
	one.seen, one.unavailable = true, !available
}

// SetRolledBack records the backends of an APIService's APIRoute that are currently rolled back.
func (a *Availability) SetRolledBack(name string, all []RolledBack) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.one(name).rolledBack = all
}

// Lost counts a transition of an APIService from available to unavailable.
func (a *Availability) Lost(name, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.one(name)
	if one.lost == nil {
		one.lost = make(map[string]int)
	}
	one.lost[reason]++
}

// one returns the counts of an APIService, creating them if needed. The caller must hold mu.
func (a *Availability) one(name string) *availability {
	if a.byName[name] == nil {
		a.byName[name] = &availability{}
	}
	return a.byName[name]
}

// Forget removes the series of a deleted APIService.
func (a *Availability) Forget(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byName, name)
}

// Describe implements prometheus.Collector.
func (a *Availability) Describe(to chan<- *prometheus.Desc) {
	to <- a.unavailable
	to <- a.lost
	to <- a.rolledBack
}

// Collect implements prometheus.Collector.
func (a *Availability) Collect(to chan<- prometheus.Metric) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, one := range a.byName {
		if one.seen {
			value := 0.0
			if one.unavailable {
				value = 1
			}
			to <- prometheus.MustNewConstMetric(a.unavailable, prometheus.GaugeValue, value, name)
		}
		for reason, n := range one.lost {
			to <- prometheus.MustNewConstMetric(a.lost, prometheus.CounterValue, float64(n), name, reason)
		}
		for _, r := range one.rolledBack {
			to <- prometheus.MustNewConstMetric(a.rolledBack, prometheus.GaugeValue, 1, name, r.Rule, r.Backend)
		}
	}
}
