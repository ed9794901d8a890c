package transport

import (
	"slices"
	"sync"
	"time"
)

// Report is what a backend looks like from here, for people.
type Report struct {
	Name       string `json:"name"`
	ServerName string `json:"serverName"`
	Insecure   bool   `json:"insecure,omitempty"`
	InFlight   int64  `json:"inFlight"`
	Limit      int64  `json:"limit"`
	// Stalled counts requests whose slots were released, since their clients do not read the responses.
	Stalled   int64            `json:"stalled,omitempty"`
	Endpoints []EndpointReport `json:"endpoints"`
}

// EndpointReport is what an endpoint looks like from here.
type EndpointReport struct {
	Endpoint
	// State is well, ejected or half-open.
	State string `json:"state"`
	// EjectedUntil is when an ejected endpoint is tried again.
	EjectedUntil *time.Time `json:"ejectedUntil,omitempty"`
	// Ejections counts them since the endpoint appeared.
	Ejections int `json:"ejections"`
	// InFlight counts requests and upgraded connections.
	InFlight int64 `json:"inFlight"`
	// Protocol is h2, http/1.1, or empty before the first connection.
	Protocol string `json:"protocol,omitempty"`
	// Connections counts those for requests over HTTP/2.
	Connections int `json:"connections"`
	// LastAnswer is when response headers last arrived.
	LastAnswer *time.Time `json:"lastAnswer,omitempty"`
	// LastFailure and LastFailureAt are the latest reason to doubt the endpoint.
	LastFailure   string     `json:"lastFailure,omitempty"`
	LastFailureAt *time.Time `json:"lastFailureAt,omitempty"`
	// CertificateExpires is the end of the serving certificate last seen.
	CertificateExpires *time.Time `json:"certificateExpires,omitempty"`
}

// Report describes the backend.
func (b *Backend) Report() Report {
	r := Report{
		Name:       b.key.name,
		ServerName: b.key.serverName,
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
	r.LastAnswer, r.LastFailureAt = stamp(h.lastGood), stamp(h.lastAt)
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

// Events tells the parts of a program what happens to backends. The zero value is ready to use. Parts subscribe when they
// run, so that none of them needs to know another one.
type Events struct {
	mu          sync.RWMutex
	subscribers []*Subscriber
}

// Subscriber is called on the goroutine that met an event. Its functions must not block; nil ones are not called.
type Subscriber struct {
	// Failed: a connection failed or was lost.
	Failed func(b *Backend)
	// Answered: the backend answered a request, with any status.
	Answered func(b *Backend)
	// DocumentsMayDiffer: the backend may serve other discovery and OpenAPI documents than before.
	DocumentsMayDiffer func(b *Backend)
	// ResourcesChanged: the backend serves other resources than it did, as its discovery documents say.
	ResourcesChanged func(b *Backend)
}

// Subscribe has s called until unsubscribe is called.
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

// Failed is for Options.OnFailure.
func (e *Events) Failed(b *Backend, _ error) {
	e.each(b, func(s *Subscriber) func(*Backend) { return s.Failed })
}

// Answered is for Options.OnSuccess.
func (e *Events) Answered(b *Backend) {
	e.each(b, func(s *Subscriber) func(*Backend) { return s.Answered })
}

// DocumentsMayDiffer tells that the backend may serve other documents than before. A nil backend is ignored.
func (e *Events) DocumentsMayDiffer(b *Backend) {
	e.each(b, func(s *Subscriber) func(*Backend) { return s.DocumentsMayDiffer })
}

// ResourcesChanged tells that the backend serves other resources than it did. A nil backend is ignored.
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
