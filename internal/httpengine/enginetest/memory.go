package enginetest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Listener is a listener of connections in memory. They have buffers and deadlines like TCP connections. In a bubble of
// testing/synctest, virtual time passes while all goroutines wait for them.
type Listener struct {
	dialed chan net.Conn
	once   sync.Once
	closed chan struct{}
}

// Listen returns a Listener.
func Listen() *Listener { return &Listener{dialed: make(chan net.Conn), closed: make(chan struct{})} }

// Dial returns the client's side of a connection that Accept has returned.
func (l *Listener) Dial(ctx context.Context) (net.Conn, error) {
	near, far := Pipe()
	select {
	case l.dialed <- far:
		return near, nil
	case <-l.closed:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.dialed:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return memoryServer }

var (
	memoryClient = &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 50000}
	memoryServer = &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 443}
)

// Pipe returns both sides of a connection in memory.
func Pipe() (client, server net.Conn) {
	up, down := newMemoryStream(), newMemoryStream()
	return &memoryConn{in: down, out: up, local: memoryClient, remote: memoryServer},
		&memoryConn{in: up, out: down, local: memoryServer, remote: memoryClient}
}

// memoryBuffer is the number of bytes that a sender may write before they are read.
const memoryBuffer = 256 << 10

// memoryStream is one direction of a connection.
type memoryStream struct {
	mu      sync.Mutex // guards the fields below
	changed *sync.Cond
	data    []byte // written and not read
	ended   bool   // the sender has closed its side
	refused bool   // the receiver has closed its side
	broken  bool   // data was sent to a closed side
	reset   bool   // the sender has closed its side without reading everything
	read    memoryDeadline
	write   memoryDeadline
}

// memoryDeadline is the deadline of one side of a memoryStream.
type memoryDeadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *memoryDeadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func newMemoryStream() *memoryStream {
	s := new(memoryStream)
	s.changed = sync.NewCond(&s.mu)
	return s
}

// set changes a deadline, and wakes the waiting goroutines now and when it passes.
func (s *memoryStream) set(d *memoryDeadline, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = at
	if wait := time.Until(at); !at.IsZero() && wait > 0 {
		d.timer = time.AfterFunc(wait, s.wake)
	}
	s.changed.Broadcast()
}

func (s *memoryStream) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.Broadcast()
}

// close closes the side with the given flag and deadline.
func (s *memoryStream) close(side *bool, d *memoryDeadline) {
	s.set(d, time.Time{})
	s.mu.Lock()
	defer s.mu.Unlock()
	*side = true
	s.changed.Broadcast()
}

func (s *memoryStream) unread() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.data) > 0
}

// memoryConn is a net.Conn.
type memoryConn struct {
	in, out       *memoryStream
	local, remote net.Addr
}

// Read implements net.Conn.
func (c *memoryConn) Read(p []byte) (int, error) {
	s := c.in
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.refused:
			return 0, net.ErrClosed
		case s.read.passed():
			return 0, os.ErrDeadlineExceeded
		case len(s.data) > 0:
			n := copy(p, s.data)
			if s.data = s.data[n:]; len(s.data) == 0 {
				s.data = nil
			}
			s.changed.Broadcast()
			return n, nil
		case s.reset:
			return 0, syscall.ECONNRESET
		case s.ended:
			return 0, io.EOF
		}
		s.changed.Wait()
	}
}

// Write implements net.Conn. Like with TCP, the first write to a closed side returns no error, and resets the connection.
func (c *memoryConn) Write(p []byte) (int, error) {
	n, err := c.out.send(p)
	if err == errFirstToClosed {
		c.in.close(&c.in.reset, &c.in.write)
		return n, nil
	}
	return n, err
}

var errFirstToClosed = errors.New("the other side is closed")

func (s *memoryStream) send(p []byte) (written int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.ended:
			return written, net.ErrClosed
		case s.write.passed():
			return written, os.ErrDeadlineExceeded
		case s.broken || s.refused && written > 0:
			return written, syscall.EPIPE
		case s.refused:
			s.broken = true
			return len(p), errFirstToClosed
		}
		if n := min(len(p), memoryBuffer-len(s.data)); n > 0 {
			s.data = append(s.data, p[:n]...)
			p = p[n:]
			written += n
			s.changed.Broadcast()
		}
		if len(p) == 0 {
			return written, nil
		}
		s.changed.Wait()
	}
}

// Close implements net.Conn. The other side reads the data written before, and then EOF, or a connection reset if this side
// has not read everything, like with TCP.
func (c *memoryConn) Close() error {
	c.in.close(&c.in.refused, &c.in.read)
	if c.in.unread() {
		c.out.close(&c.out.reset, &c.out.write)
	}
	c.out.close(&c.out.ended, &c.out.write)
	return nil
}

// LocalAddr implements net.Conn.
func (c *memoryConn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *memoryConn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *memoryConn) SetDeadline(at time.Time) error {
	_ = c.SetReadDeadline(at)
	return c.SetWriteDeadline(at)
}

// SetReadDeadline implements net.Conn.
func (c *memoryConn) SetReadDeadline(at time.Time) error {
	c.in.set(&c.in.read, at)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *memoryConn) SetWriteDeadline(at time.Time) error {
	c.out.set(&c.out.write, at)
	return nil
}
