package transport

import (
	"crypto/tls"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"portico.dev/internal/metrics"
	"portico.dev/internal/pki"
)

// Backend is an extension server as we reach it: one TLS identity and the endpoints that are said to have it.
// It is safe for concurrent use.
type Backend struct {
	key     key
	set     *Set
	tls     *tls.Config // HTTP/2 and HTTP/1.1 offered
	metrics *metrics.Backend
	budget  *budget

	silence silence
	places  Shares // of requests
	stalled Shares // of responses that their clients do not take
	limit   atomic.Int64
	vouched atomic.Int64 // when OnSuccess was told last, Unix nanoseconds
	members atomic.Pointer[[]member]

	mu   sync.Mutex  // serialises changes of members, and guards left
	left []*endpoint // endpoints that are gone, until nothing of theirs is running
}

func newBackend(s *Set, k key, spec Spec) (*Backend, error) {
	config, err := pki.ClientConfig(s.clientOptions(k, spec))
	if err != nil {
		return nil, err
	}
	b := &Backend{
		key:     k,
		set:     s,
		tls:     config,
		metrics: s.options.Metrics.For(k.name),
		budget:  newBudget(s.options.MaxInFlight),
	}
	b.silence.overdue = func() { b.notify(errOverdue) }
	b.members.Store(&[]member{})
	return b, nil
}

// Name is "namespace/name:port" of the Service.
func (b *Backend) Name() string { return b.key.name }

// ServerName is the name that the backend proves, and the host of requests to it: <service>.<namespace>.svc.
func (b *Backend) ServerName() string { return b.key.serverName }

// Endpoints are where the backend may be reached now.
func (b *Backend) Endpoints() []Endpoint {
	members := *b.members.Load()
	list := make([]Endpoint, len(members))
	for i, m := range members {
		list[i] = Endpoint{Address: m.address, Zone: m.zone, Terminating: m.terminating}
	}
	return list
}

// RoundTrip sends r to an endpoint. The host of r.URL is ignored; r.Host is kept, or is ServerName when empty.
// No redirect is followed. Errors are *Error. r's context ends the request at any time, also while its body is read;
// its deadline, if it should end with the response headers, is the caller's to take back.
func (b *Backend) RoundTrip(r *http.Request) (*http.Response, error) {
	return b.roundTrip(r, (*endpoint).requestLane)
}

// Probe is a lane of its own: its requests share no connection with clients' and are not counted in flight. What it
// learns about endpoints is used for both.
func (b *Backend) Probe() http.RoundTripper { return probe{b} }

type probe struct{ b *Backend }

func (p probe) RoundTrip(r *http.Request) (*http.Response, error) {
	return p.b.roundTrip(r, (*endpoint).probeLane)
}

func (e *endpoint) requestLane() *lane { return e.requests }
func (e *endpoint) probeLane() *lane   { return e.probes }

func (b *Backend) setLimit(n int) {
	if n <= 0 {
		n = b.set.options.MaxInFlight
	}
	b.limit.Store(int64(n))
}

// setEndpoints replaces the endpoints. Those that stay keep their connections and their health.
func (b *Backend) setEndpoints(list []Endpoint) {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := make(map[string]*endpoint)
	for _, m := range *b.members.Load() {
		known[m.address] = m.endpoint
	}
	members := make([]member, 0, len(list))
	listed := make(map[string]bool, len(list))
	for _, at := range list {
		if listed[at.Address] {
			continue
		}
		listed[at.Address] = true
		e := known[at.Address]
		if e == nil {
			e = newEndpoint(b, at.Address)
		}
		delete(known, at.Address)
		members = append(members, member{endpoint: e, zone: at.Zone, terminating: at.Terminating})
	}
	b.members.Store(&members)
	for _, e := range known {
		e.leave()
		b.remember(e)
	}
}

// remember keeps an endpoint that left until nothing of it is running, so that close can wait. Called with mu held.
func (b *Backend) remember(gone *endpoint) {
	still := b.left[:0]
	for _, e := range b.left {
		if !e.idle() {
			still = append(still, e)
		}
	}
	b.left = append(still, gone)
}

// leave takes no more requests; those in flight have the grace.
func (b *Backend) leave() { b.setEndpoints(nil) }

// idle reports, after leave, whether everything ended.
func (b *Backend) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.left {
		if !e.idle() {
			return false
		}
	}
	return true
}

func (b *Backend) close() {
	b.leave()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.left {
		e.close()
	}
	b.left = nil
}

func (b *Backend) notify(err error) {
	if f := b.set.onFailure.Load(); f != nil {
		(*f)(b, err)
	}
}

// missed is told of an idle connection that went by itself.
func (b *Backend) missed(err error) {
	if o := &b.set.options; unheard(err) {
		b.silence.broke(time.Now().Add(-o.PingTimeout)) // a ping is a question too
	}
	b.notify(err)
}

// Tunnels counts upgraded connections that opened, or closed when n is negative.
func (b *Backend) Tunnels(n int) { b.metrics.Tunnels(n) }

// Broken counts a response that ended too early.
func (b *Backend) Broken() { b.metrics.Broken() }
