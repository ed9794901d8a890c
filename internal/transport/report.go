package transport

import (
	"slices"
	"sync"
	"time"
)

// Report is the state of a backend as seen by this process, for operators.
type Report struct {
	Name       string `json:"name"`
	ServerName string `json:"serverName"`
	// Trust is how the certificate is verified, which tells apart the backends of one Service. It is the label trust of
	// the metrics.
	Trust    string `json:"trust,omitempty"`
	Insecure bool   `json:"insecure,omitempty"`
	InFlight int64  `json:"inFlight"`
	Limit    int64  `json:"limit"`
	// Stalled counts requests that released their slots because their clients do not read the responses.
	Stalled   int64            `json:"stalled,omitempty"`
	Endpoints []EndpointReport `json:"endpoints"`
}

// EndpointReport is the state of an endpoint as seen by this process.
type EndpointReport struct {
	Endpoint
	// State is well, ejected or half-open.
	State string `json:"state"`
	// EjectedUntil is the end of the current ejection.
	EjectedUntil *time.Time `json:"ejectedUntil,omitempty"`
	// Ejections counts ejections since the endpoint was added.
	Ejections int `json:"ejections"`
	// InFlight counts requests and upgraded connections.
	InFlight int64 `json:"inFlight"`
	// Protocol is h2 or http/1.1, or empty before the first connection.
	Protocol string `json:"protocol,omitempty"`
	// Connections is the number of HTTP/2 connections for requests.
	Connections int `json:"connections"`
	// LastAnswer is the time of the latest response headers.
	LastAnswer *time.Time `json:"lastAnswer,omitempty"`
	// LastFailure and LastFailureAt describe the latest failure.
	LastFailure   string     `json:"lastFailure,omitempty"`
	LastFailureAt *time.Time `json:"lastFailureAt,omitempty"`
	// CertificateExpires is the expiry of the latest serving certificate.
	CertificateExpires *time.Time `json:"certificateExpires,omitempty"`
}

// Report returns the state of the backend.
func (b *Backend) Report() Report {
	r := Report{
		Name:       b.key.name,
		ServerName: b.key.serverName,
		Trust:      b.key.trust(),
		Insecure:   b.key.insecure,
		InFlight:   b.slots.Total(),
		Limit:      b.limit.Load(),
		Stalled:    b.stalled.Total(),
		Endpoints:  []EndpointReport{},
	}
	for _, m := range *b.candidates.Load() {
		r.Endpoints = append(r.Endpoints, m.report())
	}
	return r
}

func (m candidate) report() EndpointReport {
	r := EndpointReport{
		Endpoint: Endpoint{Address: m.address, Zone: m.zone, Terminating: m.terminating},
		InFlight: m.inFlight.Load(),
	}
	m.health.fillReport(&r)
	m.requests.fillReport(&r)
	if at := m.notAfter.Load(); at != 0 {
		r.CertificateExpires = stamp(time.Unix(at, 0))
	}
	return r
}

func (h *health) fillReport(r *EndpointReport) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.State, r.Ejections, r.LastFailure = h.state.String(), h.ejected, h.last
	r.LastFailureAt = stamp(h.lastAt)
	if at := h.lastGood.Load(); at != 0 {
		r.LastAnswer = stamp(time.Unix(0, at))
	}
	if h.state == ejected {
		r.EjectedUntil = stamp(h.until)
	}
}

func (p *connPool) fillReport(r *EndpointReport) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		if !c.Closed() {
			r.Connections++
		}
	}
	switch {
	case p.http1Only:
		r.Protocol = "http/1.1"
	case r.Connections > 0:
		r.Protocol = protoHTTP2
	}
}

func stamp(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// Events distributes events of backends to the components of a program. The zero value is ready to use. Components
// subscribe when they start, so that they do not depend on each other.
type Events struct {
	mu          sync.RWMutex
	subscribers []*Subscriber
}

// Subscriber holds callbacks, which are called on the goroutine that observes an event. They must not block, and may
// be nil.
type Subscriber struct {
	// Failed is called when a connection failed or was lost.
	Failed func(b *Backend)
	// Answered is called when the backend responded to a request, with any status.
	Answered func(b *Backend)
	// DocumentsMayDiffer is called when the backend's discovery and OpenAPI documents may have changed.
	DocumentsMayDiffer func(b *Backend)
	// ResourcesChanged is called when the resources in the backend's discovery documents have changed.
	ResourcesChanged func(b *Backend)
}

// Subscribe registers s until unsubscribe is called.
func (e *Events) Subscribe(s *Subscriber) (unsubscribe func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.subscribers = append(slices.Clone(e.subscribers), s)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.subscribers = slices.DeleteFunc(slices.Clone(e.subscribers), func(o *Subscriber) bool { return o == s })
	}
}

// Failed publishes a failed or lost connection. It is an Options.OnFailure.
func (e *Events) Failed(b *Backend, _ error) {
	e.each(b, func(s *Subscriber) func(*Backend) { return s.Failed })
}

// Answered publishes a response. It is an Options.OnSuccess.
func (e *Events) Answered(b *Backend) {
	e.each(b, func(s *Subscriber) func(*Backend) { return s.Answered })
}

// DocumentsMayDiffer publishes that the backend's documents may have changed. A nil backend is ignored.
func (e *Events) DocumentsMayDiffer(b *Backend) {
	e.each(b, func(s *Subscriber) func(*Backend) { return s.DocumentsMayDiffer })
}

// ResourcesChanged publishes that the backend's resources have changed. A nil backend is ignored.
func (e *Events) ResourcesChanged(b *Backend) {
	e.each(b, func(s *Subscriber) func(*Backend) { return s.ResourcesChanged })
}

func (e *Events) each(b *Backend, event func(*Subscriber) func(*Backend)) {
	e.mu.RLock()
	subscribers := e.subscribers
	e.mu.RUnlock()
	for _, s := range subscribers {
		if f := event(s); f != nil && b != nil {
			f(b)
		}
	}
}
