package transport

import (
	"crypto/tls"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/metrics"
	"portico.dev/internal/pki"
)

// Backend is an extension server as seen by this server: one TLS identity and the endpoints listed for it. It is safe
// for concurrent use.
type Backend struct {
	key     key
	set     *Set
	tls     *tls.Config // offers HTTP/2 and HTTP/1.1
	metrics *metrics.Backend
	budget  *budget

	silence         silence
	slots           Shares // for requests
	stalled         Shares // for responses that their clients do not read
	limit           atomic.Int64
	successReported atomic.Int64 // time of the last OnSuccess call, Unix nanoseconds
	candidates      atomic.Pointer[[]candidate]
	blocked         atomic.Pointer[error] // set by Block
	comparison      comparison            // of the endpoints' responses
	suspending      sync.Mutex            // held while deciding on an ejection

	mu                sync.Mutex  // serializes changes of candidates and guards the fields below
	drainingEndpoints []*endpoint // removed endpoints with requests or goroutines still running
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
		metrics: s.options.Metrics.For(k.name, k.trust()),
		budget:  newBudget(s.options.MaxInFlight),
	}
	b.silence.overdue = func() { b.notify(errOverdue) }
	b.candidates.Store(&[]candidate{})
	return b, nil
}

// Name returns "namespace/name:port" of the Service.
func (b *Backend) Name() string { return b.key.name }

// ServerName returns the name that the backend's certificate must have, and the default host of requests to it:
// <service>.<namespace>.svc.
func (b *Backend) ServerName() string { return b.key.serverName }

// Endpoints returns the current endpoints.
func (b *Backend) Endpoints() []Endpoint {
	members := *b.candidates.Load()
	list := make([]Endpoint, len(members))
	for i, m := range members {
		list[i] = Endpoint{Address: m.address, Zone: m.zone, Terminating: m.terminating}
	}
	return list
}

// RoundTrip sends r to an endpoint. The host of r.URL is ignored. r.Host is kept, and defaults to ServerName.
// Redirects are not followed. Errors are *Error. r's context applies until the response body is closed. A deadline
// that should cover only the response headers must be lifted by the caller.
func (b *Backend) RoundTrip(r *http.Request) (*http.Response, error) {
	return b.roundTrip(r, (*endpoint).requestPool)
}

// Probe returns a RoundTripper for probes. Probes do not share connections with clients' requests and are not counted
// as in flight. Both share the health of endpoints.
func (b *Backend) Probe() http.RoundTripper { return probe{b} }

// RenewProbes moves probes to new connections, one of which is opened immediately. Existing connections end with
// their last request.
//
// crypto/tls keeps the largest buffer that a connection ever needed (probeChunk), and probes keep a connection to
// every backend. With a thousand backends, most of their memory would be buffers for documents that were read once.
func (b *Backend) RenewProbes() {
	for _, m := range *b.candidates.Load() {
		m.probes.renew()
	}
}

type probe struct{ b *Backend }

func (p probe) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.b.silence.start.Load() != 0 {
		// An idle HTTP/1.1 connection does not reveal a dead server. The handshake of a new connection does.
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

// setEndpoints replaces the endpoints. Endpoints that remain keep their connections and their health.
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

// keepUntilDrained tracks a removed endpoint until its requests and goroutines have ended, so that close can wait. It
// is called with mu held.
func (b *Backend) keepUntilDrained(gone *endpoint) {
	still := b.drainingEndpoints[:0]
	for _, e := range b.drainingEndpoints {
		if !e.drained() {
			still = append(still, e)
		}
	}
	b.drainingEndpoints = append(still, gone)
}

// drain stops accepting requests. Requests in flight may finish within the grace period.
func (b *Backend) drain() { b.setEndpoints(nil) }

// drained reports, after drain, whether all requests and goroutines have ended.
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

// idleConnLost is called when an idle connection was lost.
func (b *Backend) idleConnLost(err error) {
	o := &b.set.options
	o.Logger.Debug("idle connection lost", zap.String("backend", b.Name()), zap.Error(err))
	if noResponse(err) {
		b.silence.connectionSilent(time.Now().Add(-o.PingTimeout)) // unanswered since the ping was sent
	}
	b.notify(err)
}

// Tunnels counts upgraded connections: opened for positive n, closed for negative n.
func (b *Backend) Tunnels(n int) { b.metrics.Tunnels(n) }

// Broken counts a response that ended prematurely.
func (b *Backend) Broken() { b.metrics.Broken() }

// successInterval is the minimum interval between two OnSuccess calls for a backend.
const successInterval = time.Second

// reportSuccess calls Options.OnSuccess after a client's request was answered at now.
func (b *Backend) reportSuccess(now time.Time) {
	told := b.successReported.Load()
	if now.UnixNano()-told < int64(successInterval) || b.set.options.OnSuccess == nil {
		return
	}
	if b.successReported.CompareAndSwap(told, now.UnixNano()) {
		b.set.options.OnSuccess(b)
	}
}
