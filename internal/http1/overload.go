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

// shed is what a connection knows for it.
type shed struct {
	identity atomic.Int32 // httpmsg.Identity
	header   atomic.Int64 // bytes of the head of the request in hand
	handler  atomic.Int64 // bytes that its handler keeps, as it says
	rested   atomic.Int64 // when the connection began to wait for a request; UnixNano
}

// Identified is told by the handler whose request it is.
func (w *response) Identified(privileged bool) {
	s := &w.x.conn.shed
	if identity := httpmsg.IdentityOf(privileged); s.identity.Load() != identity {
		s.identity.Store(identity)
	}
}

// Holds is told by the handler that it keeps n more bytes because of the request.
func (w *response) Holds(n int64) { w.x.conn.shed.handler.Add(n) }

// errShort is the answer to a request that is refused before anything is done for it.
var errShort = &refusal{http.StatusServiceUnavailable, "the server is short of memory; please try again later"}

// refused reports whether the request whose head has come is refused. The first one of a connection is not: it shows whose it is.
func (c *conn) refused() bool {
	refuse := c.server.c.Refuse
	return refuse != nil && c.shed.identity.Load() == httpmsg.Ordinary && refuse()
}

// restedLong is for how long a connection waits for a request before it counts as idle: a new one, or one that is just being used
// again, would break with a request on its way.
const restedLong = 500 * time.Millisecond

// CloseIdle closes up to n connections that wait for a request, and returns how many. Connections whose last user is privileged
// stay.
func (s *Server) CloseIdle(n int) (closed int) {
	before := time.Now().Add(-restedLong).UnixNano()
	for _, c := range s.all() {
		if closed >= n {
			break
		}
		if c.shed.identity.Load() != httpmsg.Privileged && c.shed.rested.Load() <= before && c.stage.CompareAndSwap(idle, parted) {
			c.stopReading()
			closed++
		}
	}
	return closed
}

func (s *Server) all() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.conns))
}

// Holders are the connections that hold much.
func (s *Server) Holders() (all []httpmsg.Holder) {
	for _, c := range s.all() {
		if c.shed.identity.Load() == httpmsg.Privileged || c.stage.Load() != busy {
			continue
		}
		if n := httpmsg.HeldByRequest + c.shed.header.Load() + c.shed.handler.Load(); n >= httpmsg.LeastHeld {
			all = append(all, httpmsg.Holder{Bytes: n, Conn: c})
		}
	}
	return all
}

// Cut ends the connection, and the request in hand with it, unless that was hijacked.
func (c *conn) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hijacked {
		c.cut()
	}
}
