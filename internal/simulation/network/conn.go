package network

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// buffer is the number of bytes that a sender may write before the other side reads them. It is the largest send buffer of Linux,
// and not smaller, because virtual time stops while a Write waits that other goroutines wait for with a mutex, as in net/http.
const buffer = 4 << 20

// newConnection returns the sides of a connection. It is called with n.mu held.
func newConnection(n *Network, number int, from, to *Host, fromPort, toPort uint16) (near, far *conn) {
	up, down := newStream(n, number, direction{from.addr, to.addr}), newStream(n, number, direction{to.addr, from.addr})
	near = &conn{network: n, host: from, out: up, in: down, local: from.tcp(fromPort), remote: to.tcp(toPort), dialed: true}
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
	dialed        bool // the side that dialed

	// The following fields are guarded by network.mu.
	err      error       // why this side ended; net.ErrClosed after Close
	reported bool        // a call has returned err; a kernel returns it once
	abrupt   bool        // Close resets the other side
	idle     *time.Timer // ends a connection that is blocked; nil unless it is
}

// segment is the data of one write, the end of all data, or a reset.
type segment struct {
	data       []byte
	end, reset bool
	arrives    time.Time // zero while it is not on its way
}

// stream is one direction of a connection. Its fields are guarded by network.mu.
type stream struct {
	network          *Network
	number           int
	direction        direction
	sender, receiver *conn
	readable         *sync.Cond // the reader must look again
	writable         *sync.Cond // writers must look again

	flight   []segment    // sent and not arrived
	received bytes.Buffer // arrived and not read
	size     int          // bytes in flight and received
	sent     int          // number of segments so far
	writing  bool         // a call of Write has not returned
	finished bool         // the sender has sent the end
	ended    bool         // the end has arrived
	gone     bool         // the sender has sent a reset
	ackLost  bool         // data has arrived, and the sender does not learn it

	scheduled   time.Time   // when the first segment arrives; zero without one, and while it is not on its way
	arrival     *time.Timer // calls arrive at that time
	unacked     *time.Timer // ends the connection if data is not acknowledged
	read, write deadline
}

type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (d *deadline) stop() { stop(&d.timer) }

func stop(timer **time.Timer) {
	if *timer != nil {
		(*timer).Stop()
		*timer = nil
	}
}

func newStream(n *Network, number int, d direction) *stream {
	return &stream{network: n, number: number, direction: d, readable: sync.NewCond(&n.mu), writable: sync.NewCond(&n.mu)}
}

func (c *conn) sends(d direction) bool { return c.out.direction == d }

func (s *stream) blocked() bool { return s.network.blocked(s.direction) }

// acknowledged reports whether the sender's kernel learns that data has arrived.
func (s *stream) acknowledged() bool {
	return !s.blocked() && !s.network.blocked(s.direction.reverse())
}

// append sends a segment.
func (s *stream) append(g segment) {
	s.sent++
	s.flight = append(s.flight, g)
	s.size += len(g.data)
	s.send(0)
}

// send gives a time of arrival to the segments that have none, unless they cannot leave the host.
func (s *stream) send(after time.Duration) {
	n, last := s.network, time.Now()
	if !s.blocked() && !s.sender.host.frozen() {
		for i := range s.flight {
			g := &s.flight[i]
			if g.arrives.IsZero() {
				g.arrives = time.Now().Add(after + n.delay(n.link(s.direction), s.direction, s.number, s.sent))
			}
			if g.arrives.Before(last) {
				g.arrives = last
			}
			last = g.arrives
		}
	}
	s.schedule()
}

// schedule sets the timers.
func (s *stream) schedule() {
	var first time.Time
	if len(s.flight) > 0 {
		first = s.flight[0].arrives
	}
	if !first.Equal(s.scheduled) {
		stop(&s.arrival)
		if s.scheduled = first; !first.IsZero() {
			s.arrival = time.AfterFunc(time.Until(first), s.arrive)
		}
	}
	pending := (len(s.flight) > 0 || s.ackLost) && !s.gone && !s.acknowledged()
	switch {
	case pending && s.unacked == nil:
		timeout := acceptedUnackedTimeout
		if s.sender.dialed {
			timeout = unackedTimeout
		}
		s.unacked = time.AfterFunc(timeout, s.timeOut)
	case !pending:
		stop(&s.unacked)
	}
}

// arrive is called by the timer arrival.
func (s *stream) arrive() {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	s.scheduled = time.Time{}
	s.deliver()
}

// deliver gives the segments that have arrived to the receiver's kernel.
func (s *stream) deliver() {
	for len(s.flight) > 0 && !s.flight[0].arrives.IsZero() && !time.Now().Before(s.flight[0].arrives) {
		g := s.flight[0]
		s.flight = s.flight[1:]
		s.ackLost = s.ackLost || !s.acknowledged()
		switch r := s.receiver; {
		case g.reset && s.ended:
			r.abort(syscall.EPIPE)
		case g.reset:
			r.abort(syscall.ECONNRESET)
		case g.end:
			s.ended = true
		case r.err != nil:
			r.reset() // the data will not be read
		default:
			s.received.Write(g.data)
		}
	}
	s.readable.Broadcast()
	s.schedule()
}

// wake is called with network.mu held.
func (s *stream) wake() {
	s.readable.Broadcast()
	s.writable.Broadcast()
}

func (s *stream) deadlinePassed() {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	s.wake()
}

func (s *stream) timeOut() {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	if s.unacked != nil {
		s.sender.timeOut()
	}
}

// relinked sends the segments that were blocked, after the link has changed.
func (s *stream) relinked() {
	s.deliver()
	if s.blocked() {
		for i := range s.flight {
			s.flight[i].arrives = time.Time{}
		}
	}
	if s.acknowledged() {
		s.ackLost = false
	}
	s.send(retransmission)
}

// watchIdle starts or stops the keep-alive timeout.
func (c *conn) watchIdle() {
	blocked := c.err == nil && !c.out.acknowledged()
	switch {
	case blocked && c.idle == nil:
		timeout := acceptedKeepAlive
		if c.dialed {
			timeout = keepAlive
		}
		c.idle = time.AfterFunc(timeout, func() {
			c.network.mu.Lock()
			defer c.network.mu.Unlock()
			// There are no probes while data is not acknowledged.
			if c.idle != nil && c.out.unacked == nil {
				c.timeOut()
			}
		})
	case !blocked:
		stop(&c.idle)
	}
}

// timeOut ends a side that gets no acknowledgments.
func (c *conn) timeOut() {
	c.abort(syscall.ETIMEDOUT)
	c.reset()
}

// abort ends this side. It is called with network.mu held.
func (c *conn) abort(err error) {
	if c.err != nil && err != net.ErrClosed { //nolint:errorlint // it is never wrapped
		return
	}
	c.err = err
	c.in.read.stop()
	c.out.write.stop()
	stop(&c.idle)
	c.in.wake()
	c.out.wake()
	c.forget()
}

// reset resets the other side as soon as the links allow it, because its data and its probes get no other answer. It is called
// with network.mu held, after this side has ended.
func (c *conn) reset() {
	s := c.out
	if s.gone || c.peer.err != nil {
		return
	}
	s.gone, s.finished = true, true
	s.flight = slices.DeleteFunc(s.flight, func(g segment) bool { return g.arrives.IsZero() })
	s.append(segment{reset: true})
}

// finish sends the end of the data. It is called with network.mu held.
func (c *conn) finish() {
	if !c.out.finished {
		c.out.finished = true
		c.out.append(segment{end: true})
	}
}

// forget removes the connection from the network when both sides have ended.
func (c *conn) forget() {
	if c.err == nil || c.peer.err == nil {
		return
	}
	for _, s := range []*stream{c.in, c.out} {
		s.flight, s.ackLost = nil, false
		s.schedule()
	}
	delete(c.network.open, c)
	delete(c.network.open, c.peer)
}

// closed reports whether Close has been called, or the process has ended.
func (c *conn) closed() bool { return errors.Is(c.err, net.ErrClosed) }

// failure returns the error of a call on this side, which has ended.
func (c *conn) failure(op string) error {
	switch {
	case c.closed():
		return c.opError(op, net.ErrClosed)
	case !c.reported:
		c.reported = true
		return c.opError(op, os.NewSyscallError(op, c.err))
	case op == "read":
		return io.EOF
	}
	return c.opError(op, os.NewSyscallError(op, syscall.EPIPE))
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
		switch {
		case c.closed():
			return 0, c.failure("read")
		case len(p) == 0:
			return 0, nil
		case s.read.passed():
			return 0, c.opError("read", os.ErrDeadlineExceeded)
		case c.host.frozen():
		case s.received.Len() > 0:
			read, _ := s.received.Read(p)
			s.size -= read
			s.writable.Broadcast()
			return read, nil
		case s.ended:
			return 0, io.EOF
		case c.err != nil:
			return 0, c.failure("read")
		}
		s.readable.Wait()
	}
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (written int, err error) {
	n := c.network
	n.mu.Lock()
	defer n.mu.Unlock()
	s := c.out
	for s.writing && !c.closed() {
		s.writable.Wait()
	}
	s.writing = true
	defer func() { s.writing = false; s.writable.Broadcast() }()
	for {
		switch {
		case c.closed():
			return written, c.failure("write")
		case s.write.passed():
			return written, c.opError("write", os.ErrDeadlineExceeded)
		case c.err != nil:
			return written, c.failure("write")
		case s.finished:
			return written, c.opError("write", os.NewSyscallError("write", syscall.EPIPE))
		case len(p) == 0:
			return written, nil
		case s.size < buffer:
			space := min(len(p), buffer-s.size)
			s.append(segment{data: bytes.Clone(p[:space])})
			written += space
			if p = p[space:]; len(p) == 0 {
				return written, nil
			}
		}
		s.writable.Wait()
	}
}

// Close implements net.Conn. The other side reads the data written before, and then EOF, or a reset if this side has not read
// everything.
func (c *conn) Close() error {
	n := c.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.closed() {
		return c.failure("close")
	}
	ended := c.err != nil
	c.abort(net.ErrClosed)
	switch {
	case ended || c.peer.err != nil:
	case c.abrupt || c.in.received.Len() > 0:
		c.reset()
	default:
		c.finish()
	}
	return nil
}

// CloseWrite closes the direction from this side.
func (c *conn) CloseWrite() error {
	n := c.network
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case c.closed():
		return c.failure("close")
	case c.err != nil || c.in.ended && c.out.ended:
		return c.opError("close", os.NewSyscallError("shutdown", syscall.ENOTCONN))
	}
	c.finish()
	return nil
}

// SetLinger makes Close reset the other side if seconds is 0. Other values have no effect.
func (c *conn) SetLinger(seconds int) error {
	n := c.network
	n.mu.Lock()
	defer n.mu.Unlock()
	c.abrupt = seconds == 0
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
	if c.closed() {
		return c.failure("set")
	}
	d.stop()
	d.at = at
	if wait := time.Until(at); !at.IsZero() && wait > 0 {
		d.timer = time.AfterFunc(wait, s.deadlinePassed)
	}
	s.wake()
	return nil
}
