package server

import (
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/metrics"
	"portico.dev/internal/overload"
	"portico.dev/internal/proxy"
	"portico.dev/internal/respond"
	"portico.dev/internal/transport"
)

// overloadFilter refuses requests under memory pressure, starting with ordinary users, before any work except
// authentication and audit is done for them. It also reports the class of the user to the connection, so that the
// engine does not need to look it up. A nil monitor disables the filter.
func overloadFilter(o *overload.Monitor, m *metrics.Overload) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		if o == nil {
			return next
		}
		shed := m.Shed.WithLabelValues("memory")
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			who := overload.UserClassOf(recordFrom(r.Context()).User)
			if c := engineOf(w); c != nil {
				c.Authenticated(who != overload.Ordinary)
			}
			level := o.Level()
			if level.Serves(who) || alwaysAnswered(r) {
				next.ServeHTTP(w, r)
				return
			}
			shed.Inc()
			served, seconds := "nodes, controllers of the control plane and administrators", int32(1)
			if who == overload.System {
				served, seconds = "administrators", 5
			}
			refusal := apierrors.NewServiceUnavailable("the server is short of memory and serves only " + served +
				" for now; please try again later. If this lasts, give it more memory, or see who uses it: portico_overload_level in its metrics")
			refusal.ErrStatus.Details = retryAfter(seconds)
			respond.Error(w, r, refusal)
		})
	}
}

// engineOf returns the engine's writer, which is below the chain's, or nil if there is none.
func engineOf(w http.ResponseWriter) engine.ResponseWriter { return responseOf(w).engine }

// alwaysAnswered reports whether a request is for the state of the server: a failing probe would restart the server,
// and metrics explain the problem.
func alwaysAnswered(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	root, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch root {
	case "livez", "readyz", "healthz", "metrics":
		return true
	}
	return false
}

// refuse returns the function that engines call before any work is done for a request of an ordinary user. If it is
// nil, no request is refused.
func (s *Server) refuse() func() bool {
	o := s.c.Overload
	if o == nil {
		return nil
	}
	refused := s.c.OverloadMetrics.Shed.WithLabelValues("refused")
	return func() bool {
		if o.Level() < overload.Critical {
			return false
		}
		refused.Inc()
		return true
	}
}

// handshakes limits the handshakes of the server's clients, with or without a memory limit.
func (s *Server) handshakes() *handshakes {
	level := func() overload.Level { return overload.Normal }
	if s.c.Overload != nil {
		level = s.c.Overload.Level
	}
	cut := func() {}
	if s.c.OverloadMetrics != nil {
		cut = s.c.OverloadMetrics.Closed.WithLabelValues("handshake").Inc
	}
	return newHandshakes(s.c.Memory, level, cut, s.c.Overload.ReadLimiter())
}

// connCloser frees memory by closing connections.
type connCloser struct {
	clients engine.Server
	metrics *metrics.Overload
	closed  time.Time // when idle connections were last closed
}

// idleAtOnce and idleEvery limit the rate at which idle connections are closed: ten thousand take one or two seconds,
// without a burst of closing messages.
const (
	idleAtOnce = 512
	idleEvery  = 100 * time.Millisecond
)

// CloseIdle implements overload.ConnCloser.
func (s *connCloser) CloseIdle() {
	now := time.Now()
	if now.Sub(s.closed) < idleEvery {
		return
	}
	s.closed = now
	s.metrics.Closed.WithLabelValues("idle").Add(float64(s.clients.CloseIdle(idleAtOnce)))
}

// CutLargest implements overload.ConnCloser.
func (s *connCloser) CutLargest(n int64) {
	s.metrics.Closed.WithLabelValues("largest").Add(float64(s.clients.CutLargest(n)))
}

// BodyMemory limits the memory of request bodies of ordinary users that local groups read completely into memory, and of
// lists that the proxy holds as a whole (ForLists). No user can use all of it.
type BodyMemory struct {
	limit   int64
	metrics *metrics.Overload
	used    transport.Shares
}

const (
	// maxBodyMemory is the limit on machines with much memory. minBodyMemory is enough for one body of the maximum
	// size.
	maxBodyMemory, minBodyMemory = 512 << 20, 32 << 20
	// uncountedBody is the size up to which bodies are not counted: seats limit small bodies.
	uncountedBody = 64 << 10
	// bodyFactor is the memory per byte of a body: the byte, its copy while the buffer grows, and the decoded object.
	bodyFactor = 3
)

// NewBodyMemory returns a BodyMemory with a part of the memory limit.
func NewBodyMemory(l overload.Limit, m *metrics.Overload) *BodyMemory {
	return &BodyMemory{limit: max(l.Share(maxBodyMemory, 6), minBodyMemory), metrics: m}
}

// ForLists returns the same budget for the lists that a proxy holds as a whole.
func (b *BodyMemory) ForLists() proxy.ListMemory {
	return proxy.ListMemory{Shares: &b.used, Limit: b.limit}
}

// Charged returns the bytes in use.
func (b *BodyMemory) Charged() int64 { return b.used.Total() }

// charge returns the account of a request's body, or nil if the body is not counted.
func (b *BodyMemory) charge(w http.ResponseWriter, r *http.Request) *bodyCharge {
	if b == nil || r.Body == nil || r.Body == http.NoBody || r.ContentLength >= 0 && r.ContentLength <= uncountedBody {
		return nil
	}
	s, ok := requestContextFrom(r.Context())
	if !ok || overload.UserClassOf(s.record.User) != overload.Ordinary {
		return nil
	}
	return &bodyCharge{memory: b, user: s.payer(), conn: engineOf(w)}
}

// bodyCharge accounts for the body of one request.
type bodyCharge struct {
	memory  *BodyMemory
	user    string
	conn    engine.ResponseWriter // nil for requests of the server itself
	read    int64
	mu      sync.Mutex // guards the fields below: the body may be read after the handler has returned
	charged int64
	ended   bool
}

// add counts n bytes read, and reports whether there is memory for them.
func (h *bodyCharge) add(n int) bool {
	h.read += int64(n)
	if h.read <= uncountedBody {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	more := bodyFactor*h.read - h.charged
	if more <= 0 || h.ended {
		return true
	}
	more += uncountedBody // in advance, so that not every read calls Take
	if ok, _ := h.memory.used.Take(h.user, more, h.memory.limit); !ok {
		h.memory.metrics.Shed.WithLabelValues("bodies").Inc()
		return false
	}
	h.charge(more)
	return true
}

// release returns all memory when the request has ended.
func (h *bodyCharge) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	if h.charged > 0 {
		h.memory.used.Give(h.user, h.charged)
		h.charge(-h.charged)
	}
}

// charge must be called with mu held.
func (h *bodyCharge) charge(n int64) {
	h.charged += n
	if h.conn != nil {
		h.conn.ChargeMemory(n)
	}
}

// errBodyMemory returns the error of body reads while other bodies use the memory.
func errBodyMemory() error {
	refusal := apierrors.NewServiceUnavailable("large bodies of other requests are being read, and there is no memory for this one; please send it again later")
	refusal.ErrStatus.Details = retryAfter(1)
	return refusal
}
