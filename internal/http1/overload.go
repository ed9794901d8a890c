package http1

import (
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"portico.dev/internal/httpmsg"
)

// What is done when memory is short. Who decides is the server's user: see httpmsg.Identity.

// memoryUse is what a connection knows for it.
type memoryUse struct {
	class     atomic.Int32 // httpmsg.Identity
	header    atomic.Int64 // bytes of the head of the request in hand
	handler   atomic.Int64 // bytes that its handler keeps, as it says
	idleSince atomic.Int64 // when the connection began to wait for a request; UnixNano
}

// Authenticated is told by the handler whose request it is.
func (w *response) Authenticated(privileged bool) {
	s := &w.x.conn.memory
	if identity := httpmsg.ClassOf(privileged); s.class.Load() != identity {
		s.class.Store(identity)
	}
}

// ChargeMemory is told by the handler that it keeps n more bytes because of the request.
func (w *response) ChargeMemory(n int64) { w.x.conn.memory.handler.Add(n) }

// errLowMemory is the answer to a request that is refused before anything is done for it.
var errLowMemory = &refusal{http.StatusServiceUnavailable, "the server is short of memory; please try again later"}

// shouldRefuse reports whether the request whose head has come is refused. The first one of a connection is not: it shows whose it is.
func (c *conn) shouldRefuse() bool {
	refuse := c.server.c.Refuse
	return refuse != nil && c.memory.class.Load() == httpmsg.Ordinary && refuse()
}

// minIdle is for how long a connection waits for a request before it counts as idle: a new one, or one that is just being used
// again, would break with a request on its way.
const minIdle = 500 * time.Millisecond

// CloseIdle closes up to n connections that wait for a request, and returns how many. Connections whose last user is privileged
// stay.
func (s *Server) CloseIdle(n int) (closed int) {
	before := time.Now().Add(-minIdle).UnixNano()
	for _, c := range s.allConns() {
		if closed >= n {
			break
		}
		if c.memory.class.Load() != httpmsg.Privileged && c.memory.idleSince.Load() <= before && c.stage.CompareAndSwap(idle, closingIdle) {
			c.stopReading()
			closed++
		}
	}
	return closed
}

func (s *Server) allConns() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.conns))
}

// LargeConns are the connections that hold much.
func (s *Server) LargeConns() (all []httpmsg.ConnMemory) {
	for _, c := range s.allConns() {
		if c.memory.class.Load() == httpmsg.Privileged || c.stage.Load() != handling {
			continue
		}
		if n := httpmsg.RequestOverhead + c.memory.header.Load() + c.memory.handler.Load(); n >= httpmsg.MinConnMemory {
			all = append(all, httpmsg.ConnMemory{Bytes: n, Conn: c})
		}
	}
	return all
}

// Cut ends the connection, and the request in hand with it, unless that was hijacked.
func (c *conn) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hijacked {
		c.closeNow()
	}
}
