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

	silence         silence
	slots           Shares // of requests
	stalled         Shares // of responses that their clients do not take
	limit           atomic.Int64
	successReported atomic.Int64 // when OnSuccess was called last, Unix nanoseconds
	candidates      atomic.Pointer[[]candidate]
	blocked         atomic.Pointer[error] // by Block
	comparison      comparison            // of the responses of several endpoints
	suspending      sync.Mutex            // held while it is decided whether an endpoint may be ejected

	mu                sync.Mutex  // serialises changes of candidates, and guards what follows
	drainingEndpoints []*endpoint // endpoints that are gone, until nothing of theirs is running
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
	b.candidates.Store(&[]candidate{})
	return b, nil
}

// Name is "namespace/name:port" of the Service.
func (b *Backend) Name() string { return b.key.name }

// ServerName is the name that the backend proves, and the host of requests to it: <service>.<namespace>.svc.
func (b *Backend) ServerName() string { return b.key.serverName }

// Endpoints are where the backend may be reached now.
func (b *Backend) Endpoints() []Endpoint {
	members := *b.candidates.Load()
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
	return b.roundTrip(r, (*endpoint).requestPool)
}

// Probe has connection pools of its own: probes share no connection with clients' requests and are not counted in
// flight. What they learn about endpoints is used for both.
func (b *Backend) Probe() http.RoundTripper { return probe{b} }

// RenewProbes has later probes sent over new connections, of which one is made at once. Those there are end with their last request.
//
// crypto/tls keeps the largest buffer that a connection ever needed (probeChunk), and probes keep a connection to every backend. With a thousand of
// them, the buffers of documents that were read once are most of what they take.
func (b *Backend) RenewProbes() {
	for _, m := range *b.candidates.Load() {
		m.probes.renew()
	}
}

type probe struct{ b *Backend }

func (p probe) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.b.silence.since.Load() != 0 {
		// An HTTP/1.1 connection that was idle shows nothing. The handshake of a new one does.
		for _, m := range *p.b.candidates.Load() {
			m.probes.closeIdleHTTP1()
		}
	}
	return p.b.roundTrip(r, (*endpoint).probePool)
}

func (e *endpoint) requestPool() *connPool { return e.requests }
func (e *endpoint) probePool() *connPool   { return e.probes }

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
	for _, m := range *b.candidates.Load() {
		known[m.address] = m.endpoint
	}
	members := make([]candidate, 0, len(list))
	listed := make(map[string]bool, len(list))
	for _, at := range list {
		if listed[at.Address] {
			continue
		}
		listed[at.Address] = true
		e := known[at.Address]
		if e == nil {
			e = newEndpoint(b, at.Address)
			if why := b.blocked.Load(); why != nil {
				e.requests.block(*why, time.Time{}, false)
			}
		}
		delete(known, at.Address)
		members = append(members, candidate{endpoint: e, zone: at.Zone, terminating: at.Terminating})
	}
	b.candidates.Store(&members)
	for _, e := range known {
		e.drain()
		b.keepUntilDrained(e)
	}
}

// keepUntilDrained keeps an endpoint that left until nothing of it is running, so that close can wait. Called with mu
// held.
func (b *Backend) keepUntilDrained(gone *endpoint) {
	still := b.drainingEndpoints[:0]
	for _, e := range b.drainingEndpoints {
		if !e.drained() {
			still = append(still, e)
		}
	}
	b.drainingEndpoints = append(still, gone)
}

// drain takes no more requests; those in flight have the grace.
func (b *Backend) drain() { b.setEndpoints(nil) }

// drained reports, after drain, whether everything ended.
func (b *Backend) drained() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.drainingEndpoints {
		if !e.drained() {
			return false
		}
	}
	return true
}

func (b *Backend) close() {
	b.drain()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.drainingEndpoints {
		e.close()
	}
	b.drainingEndpoints = nil
}

func (b *Backend) notify(err error) {
	if f := b.set.onFailure.Load(); f != nil {
		(*f)(b, err)
	}
}

// idleConnLost is called when an idle connection was closed by the other side.
func (b *Backend) idleConnLost(err error) {
	if o := &b.set.options; noResponse(err) {
		b.silence.connectionSilent(time.Now().Add(-o.PingTimeout)) // a ping is a question too
	}
	b.notify(err)
}

// Tunnels counts upgraded connections that opened, or closed when n is negative.
func (b *Backend) Tunnels(n int) { b.metrics.Tunnels(n) }

// Broken counts a response that ended too early.
func (b *Backend) Broken() { b.metrics.Broken() }

// successInterval is the least time between two reports that a backend answers.
const successInterval = time.Second

// reportSuccess tells Options.OnSuccess that a client's request was answered at now.
func (b *Backend) reportSuccess(now time.Time) {
	told := b.successReported.Load()
	if now.UnixNano()-told < int64(successInterval) || b.set.options.OnSuccess == nil {
		return
	}
	if b.successReported.CompareAndSwap(told, now.UnixNano()) {
		b.set.options.OnSuccess(b)
	}
}
