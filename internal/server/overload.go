package server

import (
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico.dev/internal/engine"
	"portico.dev/internal/metrics"
	"portico.dev/internal/overload"
	"portico.dev/internal/respond"
	"portico.dev/internal/transport"
)

// overloadFilter refuses requests while memory is short, of ordinary users first, before anything is done for them but to
// authenticate them and to write down that they were refused. It also tells the connection whose it is, so that the engine need not
// ask again. Without a monitor it is not there.
func overloadFilter(o *overload.Monitor, m *metrics.Overload) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		if o == nil {
			return next
		}
		shed := m.Shed.WithLabelValues("memory")
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			who := overload.UserClassOf(recordFrom(r.Context()).user)
			if c, ok := connectionOf(w).(interface{ Authenticated(privileged bool) }); ok {
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

// connectionOf is the engine's writer below that of the chain.
func connectionOf(w http.ResponseWriter) http.ResponseWriter {
	return responseOf(w).ResponseWriter
}

// alwaysAnswered is what says how the server is: a probe that is refused has it restarted, and metrics show why.
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

// refuse is what engines ask before they do anything for a request of somebody who is not privileged. Nil: they need not ask.
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

// handshakes bounds the handshakes of the server's clients, whether memory is limited or not.
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

// connCloser lets go of memory by closing connections.
type connCloser struct {
	clients engine.Server
	metrics *metrics.Overload
	closed  time.Time // when idle connections were closed last
}

// idleAtOnce and idleEvery have ten thousand idle connections closed within a second or two, without a burst of closing messages.
const (
	idleAtOnce = 512
	idleEvery  = 100 * time.Millisecond
)

// CloseIdle implements overload.Reliever.
func (s *connCloser) CloseIdle() {
	now := time.Now()
	if now.Sub(s.closed) < idleEvery {
		return
	}
	s.closed = now
	s.metrics.Closed.WithLabelValues("idle").Add(float64(s.clients.CloseIdle(idleAtOnce)))
}

// CutLargest implements overload.Reliever.
func (s *connCloser) CutLargest(n int64) {
	s.metrics.Closed.WithLabelValues("largest").Add(float64(s.clients.CutLargest(n)))
}

// BodyMemory bounds what the requests of ordinary users together hold of bodies that are read whole into memory, which only the local
// groups do. No user can have all of that.
type BodyMemory struct {
	limit   int64
	metrics *metrics.Overload
	used    transport.Shares
}

const (
	// maxBodyMemory bounds it however much memory there is, and leastBodies is what a body of the largest size needs.
	maxBodyMemory, minBodyMemory = 512 << 20, 32 << 20
	// uncountedBody is not counted: seats bound small bodies.
	uncountedBody = 64 << 10
	// bodyFactor is what a byte of a body costs: itself, its copy while the room for it grows, and the object that it becomes.
	bodyFactor = 3
)

// NewBodyMemory bounds them to a part of the memory that there is.
func NewBodyMemory(l overload.Limit, m *metrics.Overload) *BodyMemory {
	return &BodyMemory{limit: max(l.Share(maxBodyMemory, 6), minBodyMemory), metrics: m}
}

// charge returns what a request will hold, or nil when that is not counted.
func (b *BodyMemory) charge(w http.ResponseWriter, r *http.Request) *bodyCharge {
	if b == nil || r.Body == nil || r.Body == http.NoBody || r.ContentLength >= 0 && r.ContentLength <= uncountedBody {
		return nil
	}
	s, ok := requestContextFrom(r.Context())
	if !ok || overload.UserClassOf(s.record.user) != overload.Ordinary {
		return nil
	}
	h := &bodyCharge{memory: b, user: s.who()}
	h.conn, _ = connectionOf(w).(interface{ ChargeMemory(n int64) })
	return h
}

// bodyCharge is what a request holds of it.
type bodyCharge struct {
	memory  *BodyMemory
	user    string
	conn    interface{ ChargeMemory(n int64) } // nil: nobody is told
	read    int64
	mu      sync.Mutex // guards what follows: a handler may have returned while its body is being read
	charged int64
	ended   bool
}

// add counts n bytes that were read, and reports whether there is room for them.
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
	more += uncountedBody // ahead, so that not every read asks
	if ok, _ := h.memory.used.Take(h.user, more, h.memory.limit); !ok {
		h.memory.metrics.Shed.WithLabelValues("bodies").Inc()
		return false
	}
	h.charge(more)
	return true
}

// release gives everything back: the request is over.
func (h *bodyCharge) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	if h.charged > 0 {
		h.memory.used.Give(h.user, h.charged)
		h.charge(-h.charged)
	}
}

// charge is called with mu held.
func (h *bodyCharge) charge(n int64) {
	h.charged += n
	if h.conn != nil {
		h.conn.ChargeMemory(n)
	}
}

// errBodyMemory is what reading a body meets when others have the memory for it.
func errBodyMemory() error {
	refusal := apierrors.NewServiceUnavailable("large bodies of other requests are being read, and there is no memory for this one; please send it again later")
	refusal.ErrStatus.Details = retryAfter(1)
	return refusal
}
