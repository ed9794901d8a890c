package server

import (
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"portico.dev/internal/httpengine/httpmsg"
	"portico.dev/internal/httpengine/portico/http2/frame"
)

// This file contains the overload protection; see httpmsg.ClientClass. The owner of the Server triggers it.

// memoryUse contains the class of a connection's user.
type memoryUse struct {
	class atomic.Int32 // httpmsg.ClientClass
}

// streamMemory is the memory that a stream holds.
type streamMemory struct {
	handler    atomic.Int64 // bytes that the handler reported
	header     int          // memory of the header
	grant      *httpmsg.HeaderGrant
	privileged bool // guarded by the connection's mu
}

var errLowMemory = errors.New("memory is short, and the connection held much of it")

// Authenticated is called by the handler that authenticated the request.
func (w *response) Authenticated(privileged bool) {
	st := w.stream()
	c := st.conn
	if identity := httpmsg.ClassOf(privileged); c.memory.class.Load() != identity {
		c.memory.class.Store(identity)
	}
	if privileged {
		c.mu.Lock()
		st.memory.privileged = true
		c.mu.Unlock()
	}
}

// ChargeMemory is called by a handler that holds n more bytes for the request.
func (w *response) ChargeMemory(n int64) { w.stream().memory.handler.Add(n) }

// shouldRefuse reports whether a new stream is refused before any work is done for it. A connection with an unknown user
// may have one stream, which identifies the user.
func (c *conn) shouldRefuse() bool {
	refuse := c.server.c.Refuse
	if refuse == nil {
		return false
	}
	switch c.memory.class.Load() {
	case httpmsg.Privileged:
		return false
	case httpmsg.Unauthenticated:
		c.mu.Lock()
		first := len(c.streams) == 0
		c.mu.Unlock()
		if first {
			return false
		}
	}
	return refuse()
}

// size returns the length of all names and values.
func (h *headerBlock) size() (n int) {
	for _, f := range h.fields {
		n += len(f.name) + len(f.value)
	}
	return n
}

// CloseIdle sends GOAWAY on up to n connections without streams, and returns their number. It skips connections with a
// privileged last user.
func (s *Server) CloseIdle(n int) (closed int) {
	for _, c := range s.allConns() {
		if closed >= n {
			break
		}
		if c.memory.class.Load() != httpmsg.Privileged && c.idle() {
			c.goAway()
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

func (c *conn) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.streams) == 0 && c.goaway.stage == goAwayNone && c.timeouts.prefaceRead
}

// LargeConns returns the connections that hold much memory.
func (s *Server) LargeConns() (all []httpmsg.ConnMemory) {
	for _, c := range s.allConns() {
		if n := c.memoryUse(); n >= httpmsg.MinConnMemory {
			all = append(all, httpmsg.ConnMemory{Bytes: n, Conn: c})
		}
	}
	return all
}

// memoryUse returns the memory held by the streams that Cut would end.
func (c *conn) memoryUse() (n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, st := range c.streams {
		if st.memory.privileged {
			continue
		}
		buffered, _ := st.body.Buffered()
		n += httpmsg.RequestOverhead + int64(st.memory.header) + int64(buffered) + st.memory.handler.Load()
	}
	return n
}

// Cut resets the streams of users who are not privileged, and closes the connection with GOAWAY unless a privileged user
// uses it.
func (c *conn) Cut() {
	c.mu.Lock()
	spared := c.memory.class.Load() == httpmsg.Privileged
	all := make([]*stream, 0, len(c.streams))
	for _, st := range c.streams {
		if st.memory.privileged {
			spared = true
		} else {
			all = append(all, st)
		}
	}
	last, over := c.lastID, spared || c.goaway.stage >= goAwayDrained
	if !over {
		c.goaway.stage = goAwayError
	}
	c.mu.Unlock()
	for _, st := range all {
		st.reset(frame.EnhanceYourCalm, errLowMemory)
	}
	if over {
		return
	}
	_ = c.w.WriteGoAway(last, frame.EnhanceYourCalm, errLowMemory.Error()) // if it cannot be sent, the deadline ends the connection
	_ = c.net.SetReadDeadline(time.Now().Add(c.server.c.GoAwayGrace))
}
