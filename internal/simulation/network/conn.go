package network

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// buffer is the number of bytes that a sender may write before the other side reads them.
const buffer = 256 << 10

// newConnection returns the sides of a connection. It is called with n.mu held.
func newConnection(n *Network, number int, from, to *Host, fromPort, toPort uint16) (near, far *conn) {
	up, down := newStream(n, number, direction{from.addr, to.addr}), newStream(n, number, direction{to.addr, from.addr})
	near = &conn{network: n, host: from, out: up, in: down, local: from.tcp(fromPort), remote: to.tcp(toPort)}
	far = &conn{network: n, host: to, out: down, in: up, local: near.remote, remote: near.local}
	near.peer, far.peer = far, near
	up.sender, up.receiver, down.sender, down.receiver = near, far, far, near
	return near, far
}

// conn is one side of a connection.
type conn struct {
	network       *Network
	host          *Host
	peer          *conn
	in, out       *stream
	local, remote net.Addr

	// The following fields are guarded by network.mu.
	err  error       // why the connection ended; net.ErrClosed after Close
	idle *time.Timer // ends a connection that is blocked; nil unless it is
}

// segment is the data of one write.
type segment struct {
	data    []byte
	arrives time.Time // zero while the link is blocked
	end     bool      // the sender has closed its side
}

// stream is one direction of a connection. Its fields are guarded by network.mu.
type stream struct {
	network          *Network
	number           int
	direction        direction
	sender, receiver *conn
	changed          *sync.Cond

	segments []segment // sent and not received
	size     int       // bytes in segments
	sent     int       // number of segments so far
	finished bool      // the sender has closed its side

	scheduled   time.Time   // when the first segment arrives; zero without one, and while it is blocked
	arrival     *time.Timer // wakes the receiver at that time
	unacked     *time.Timer // ends the connection if the first segment is not acknowledged
	read, write deadline
}

type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func newStream(n *Network, number int, d direction) *stream {
	return &stream{network: n, number: number, direction: d, changed: sync.NewCond(&n.mu)}
}

func (c *conn) sends(d direction) bool { return c.out.direction == d }

func (s *stream) blocked() bool { return s.network.blocked(s.direction) }

// acknowledged reports whether the sender's kernel learns that data has arrived.
func (s *stream) acknowledged() bool {
	return !s.blocked() && !s.network.blocked(s.direction.reverse())
}

// append sends a segment.
func (s *stream) append(g segment) {
	n := s.network
	s.sent++
	if !s.blocked() {
		g.arrives = time.Now().Add(n.delay(n.link(s.direction), s.direction, s.number, s.sent))
		if last := len(s.segments) - 1; last >= 0 && g.arrives.Before(s.segments[last].arrives) {
			g.arrives = s.segments[last].arrives
		}
	}
	s.segments = append(s.segments, g)
	s.size += len(g.data)
	s.schedule()
}

// schedule wakes the receiver when the first segment arrives, and starts the timeout of the sender's kernel.
func (s *stream) schedule() {
	var first time.Time
	if len(s.segments) > 0 {
		first = s.segments[0].arrives
	}
	if first != s.scheduled {
		if s.arrival != nil {
			s.arrival.Stop()
			s.arrival = nil
		}
		s.scheduled = first
		if wait := time.Until(first); wait > 0 {
			s.arrival = time.AfterFunc(wait, s.wake)
		} else if !first.IsZero() {
			s.changed.Broadcast()
		}
	}
	pending := len(s.segments) > 0 && !s.acknowledged()
	switch {
	case pending && s.unacked == nil && s.sender.err == nil:
		s.unacked = time.AfterFunc(unackedTimeout, s.timeOut)
	case !pending && s.unacked != nil:
		s.unacked.Stop()
		s.unacked = nil
	}
}

func (s *stream) wake() {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	s.changed.Broadcast()
}

func (s *stream) timeOut() {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	if s.unacked != nil {
		s.unacked = nil
		s.sender.abort(syscall.ETIMEDOUT)
	}
}

// relinked sends the segments that were blocked, after the link has changed.
func (s *stream) relinked() {
	n := s.network
	if !s.blocked() {
		last := time.Now()
		for i := range s.segments {
			g := &s.segments[i]
			if g.arrives.IsZero() {
				g.arrives = time.Now().Add(retransmission + n.delay(n.link(s.direction), s.direction, s.number, s.sent))
			}
			if g.arrives.Before(last) {
				g.arrives = last
			}
			last = g.arrives
		}
	} else {
		for i := range s.segments {
			if s.segments[i].arrives.After(time.Now()) {
				s.segments[i].arrives = time.Time{}
			}
		}
	}
	s.schedule()
}

// watchIdle starts or stops the keep-alive timeout.
func (c *conn) watchIdle() {
	blocked := c.err == nil && !c.out.acknowledged()
	switch {
	case blocked && c.idle == nil:
		c.idle = time.AfterFunc(keepAlive, func() {
			c.network.mu.Lock()
			defer c.network.mu.Unlock()
			if c.idle != nil {
				c.idle = nil
				c.abort(syscall.ETIMEDOUT)
			}
		})
	case !blocked && c.idle != nil:
		c.idle.Stop()
		c.idle = nil
	}
}

// abort ends this side. It is called with network.mu held.
func (c *conn) abort(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	c.in.read.stop()
	c.out.write.stop()
	for _, timer := range []**time.Timer{&c.idle, &c.out.unacked} {
		if *timer != nil {
			(*timer).Stop()
			*timer = nil
		}
	}
	c.in.changed.Broadcast()
	c.out.changed.Broadcast()
	c.forget()
}

// forget removes the connection from the network when both sides have ended.
func (c *conn) forget() {
	if c.err == nil || c.peer.err == nil {
		return
	}
	for _, s := range []*stream{c.in, c.out} {
		if s.arrival != nil {
			s.arrival.Stop()
		}
		s.segments, s.size = nil, 0
	}
	delete(c.network.open, c)
	delete(c.network.open, c.peer)
}

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

// failure returns the error of a call on this side, or nil.
func (c *conn) failure(op string) error {
	switch {
	case c.err == nil:
		return nil
	case errors.Is(c.err, net.ErrClosed):
		return c.opError(op, c.err)
	}
	return c.opError(op, os.NewSyscallError(op, c.err))
}

func (c *conn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n := c.network
	n.mu.Lock()
	defer n.mu.Unlock()
	s := c.in
	for {
		if err := c.failure("read"); err != nil {
			return 0, err
		}
		if s.read.passed() {
			return 0, c.opError("read", os.ErrDeadlineExceeded)
		}
		if !c.host.frozen && len(s.segments) > 0 {
			g := &s.segments[0]
			if arrives := g.arrives; !arrives.IsZero() && !time.Now().Before(arrives) {
				if g.end {
					return 0, io.EOF
				}
				if len(p) == 0 {
					return 0, nil
				}
				read := copy(p, g.data)
				s.size -= read
				if g.data = g.data[read:]; len(g.data) == 0 {
					s.segments = s.segments[1:]
					s.schedule()
				}
				s.changed.Broadcast()
				return read, nil
			}
		}
		s.changed.Wait()
	}
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (written int, err error) {
	n := c.network
	n.mu.Lock()
	defer n.mu.Unlock()
	s := c.out
	for {
		if err := c.failure("write"); err != nil {
			return written, err
		}
		if s.write.passed() {
			return written, c.opError("write", os.ErrDeadlineExceeded)
		}
		if s.finished {
			return written, c.opError("write", syscall.EPIPE)
		}
		if len(p) == 0 {
			return written, nil
		}
		if space := min(len(p), buffer-s.size); space > 0 && !c.host.frozen {
			if c.peer.err != nil && !s.blocked() && !c.peer.host.off {
				// The other side has closed, so its kernel resets the connection.
				c.abort(syscall.ECONNRESET)
				return written + len(p), nil
			}
			s.append(segment{data: append([]byte(nil), p[:space]...)})
			p = p[space:]
			written += space
			continue
		}
		s.changed.Wait()
	}
}

// Close implements net.Conn. The other side reads the data written before, and then EOF, or a reset if this side has not read
// everything.
func (c *conn) Close() error {
	n := c.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.err != nil {
		if errors.Is(c.err, net.ErrClosed) {
			return c.opError("close", net.ErrClosed)
		}
		c.err = net.ErrClosed
		return nil
	}
	if c.in.size > 0 && !c.out.blocked() {
		c.peer.abort(syscall.ECONNRESET)
	} else if !c.out.finished {
		c.out.finished = true
		c.out.append(segment{end: true})
	}
	c.abort(net.ErrClosed)
	return nil
}

// CloseWrite closes the direction from this side.
func (c *conn) CloseWrite() error {
	n := c.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := c.failure("close"); err != nil {
		return err
	}
	if !c.out.finished {
		c.out.finished = true
		c.out.append(segment{end: true})
	}
	return nil
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(at time.Time) error {
	return errors.Join(c.SetReadDeadline(at), c.SetWriteDeadline(at))
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(at time.Time) error { return c.setDeadline(c.in, &c.in.read, at) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(at time.Time) error { return c.setDeadline(c.out, &c.out.write, at) }

func (c *conn) setDeadline(s *stream, d *deadline, at time.Time) error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if c.err != nil {
		return c.opError("set", net.ErrClosed)
	}
	d.stop()
	d.at = at
	if wait := time.Until(at); !at.IsZero() && wait > 0 {
		d.timer = time.AfterFunc(wait, s.wake)
	}
	s.changed.Broadcast()
	return nil
}
