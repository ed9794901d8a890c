package server

import (
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"portico.dev/internal/http2/frame"
	"portico.dev/internal/httpmsg"
)

// What is done when memory is short. Who decides is the server's user: see httpmsg.Identity.

// shed is what a connection knows for it.
type shed struct {
	identity atomic.Int32 // httpmsg.Identity
}

// holding is what a stream does.
type holding struct {
	handler    atomic.Int64 // bytes that the handler keeps, as it says
	header     int          // bytes of names and values
	privileged bool         // guarded by the connection's mu
}

var errShed = errors.New("memory is short, and the connection held much of it")

// Identified is told by the handler whose request it is.
func (w *response) Identified(privileged bool) {
	st := w.stream()
	c := st.conn
	if identity := httpmsg.IdentityOf(privileged); c.shed.identity.Load() != identity {
		c.shed.identity.Store(identity)
	}
	if privileged {
		c.mu.Lock()
		st.holding.privileged = true
		c.mu.Unlock()
	}
}

// Holds is told by the handler that it keeps n more bytes because of the request.
func (w *response) Holds(n int64) { w.stream().holding.handler.Add(n) }

// refused reports whether a new stream is refused before anything is done for it. A connection of which nobody knows whose it is
// may have one stream: that is how it becomes known.
func (c *conn) refused() bool {
	refuse := c.server.c.Refuse
	if refuse == nil {
		return false
	}
	switch c.shed.identity.Load() {
	case httpmsg.Privileged:
		return false
	case httpmsg.Unidentified:
		c.mu.Lock()
		first := len(c.streams) == 0
		c.mu.Unlock()
		if first {
			return false
		}
	}
	return refuse()
}

// size is how many bytes the names and values of the header have.
func (h *head) size() (n int) {
	for _, f := range h.fields {
		n += len(f.name) + len(f.value)
	}
	return n
}

// CloseIdle tells the clients of up to n connections without streams to go elsewhere, and returns how many. Connections whose last
// user is privileged stay.
func (s *Server) CloseIdle(n int) (closed int) {
	for _, c := range s.all() {
		if closed >= n {
			break
		}
		if c.shed.identity.Load() != httpmsg.Privileged && c.idle() {
			c.goAway()
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

func (c *conn) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.streams) == 0 && c.bye.stage == byeStaying && c.watch.greeted
}

// Holders are the connections that hold much.
func (s *Server) Holders() (all []httpmsg.Holder) {
	for _, c := range s.all() {
		if n := c.holds(); n >= httpmsg.LeastHeld {
			all = append(all, httpmsg.Holder{Bytes: n, Conn: c})
		}
	}
	return all
}

// holds is how much the streams hold that Cut would end.
func (c *conn) holds() (n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, st := range c.streams {
		if st.holding.privileged {
			continue
		}
		buffered, _ := st.body.Buffered()
		n += httpmsg.HeldByRequest + int64(st.holding.header) + int64(buffered) + st.holding.handler.Load()
	}
	return n
}

// Cut resets the streams of users who are not privileged, and ends the connection with GOAWAY unless a privileged one uses it.
func (c *conn) Cut() {
	c.mu.Lock()
	spared := c.shed.identity.Load() == httpmsg.Privileged
	all := make([]*stream, 0, len(c.streams))
	for _, st := range c.streams {
		if st.holding.privileged {
			spared = true
		} else {
			all = append(all, st)
		}
	}
	last, over := c.last, spared || c.bye.stage >= byeParted
	if !over {
		c.bye.stage = byeBroken
	}
	c.mu.Unlock()
	for _, st := range all {
		st.kill(frame.EnhanceYourCalm, errShed)
	}
	if over {
		return
	}
	_ = c.out.GoAway(last, frame.EnhanceYourCalm, errShed.Error()) // the deadline ends what cannot be told
	_ = c.net.SetReadDeadline(time.Now().Add(c.server.c.GoAwayGrace))
}
