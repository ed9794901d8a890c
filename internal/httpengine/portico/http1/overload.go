package http1

import (
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"portico.dev/internal/httpengine/httpmsg"
)

// This file contains the overload protection; see httpmsg.ClientClass. The owner of the Server triggers it.

// memoryUse describes the memory of a connection.
type memoryUse struct {
	class     atomic.Int32 // httpmsg.ClientClass
	header    atomic.Int64 // bytes of the header of the current request
	handler   atomic.Int64 // bytes that its handler reported
	idleSince atomic.Int64 // when the connection became idle; UnixNano
	// grant is the grant of the current request's header. It is used by the goroutine that serves the connection.
	grant *httpmsg.HeaderGrant
}

// Authenticated is called by the handler that authenticated the request.
func (w *response) Authenticated(privileged bool) {
	s := &w.x.conn.memory
	if identity := httpmsg.ClassOf(privileged); s.class.Load() != identity {
		s.class.Store(identity)
	}
}

// LargeHeader returns the grant of the request's header, or nil, and the memory that the header uses.
func (w *response) LargeHeader() (*httpmsg.HeaderGrant, int64) {
	m := &w.x.conn.memory
	return m.grant, m.header.Load()
}

// ChargeMemory is called by a handler that holds n more bytes for the request.
func (w *response) ChargeMemory(n int64) { w.x.conn.memory.handler.Add(n) }

// errLowMemory is the response to a request that is refused before any work is done for it.
var errLowMemory = &refusal{http.StatusServiceUnavailable, "the server is short of memory; please try again later"}

// shouldRefuse reports whether to refuse a request after its header was read. It does not refuse the first request of a
// connection, because its user is unknown.
func (c *conn) shouldRefuse() bool {
	refuse := c.server.c.Refuse
	return refuse != nil && c.memory.class.Load() == httpmsg.Ordinary && refuse()
}

// minIdle is how long a connection without a request must wait before it counts as idle. On a newer one a request may be in
// transit, which would fail.
const minIdle = 500 * time.Millisecond

// CloseIdle closes up to n idle connections, and returns their number. It skips connections with a privileged last user.
func (s *Server) CloseIdle(n int) (closed int) {
	before := time.Now().Add(-minIdle).UnixNano()
	for _, c := range s.allConns() {
		if closed >= n {
			break
		}
		if c.memory.class.Load() != httpmsg.Privileged && c.memory.idleSince.Load() <= before &&
			(c.stage.CompareAndSwap(idle, closingIdle) || c.stage.CompareAndSwap(fresh, closingIdle)) {
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

// LargeConns returns the connections that hold much memory.
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

// Cut closes the connection and ends its request, unless it was hijacked.
func (c *conn) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hijacked {
		c.closeNow()
	}
}
