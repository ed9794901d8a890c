package transport

import (
	"net"
	"sync/atomic"
	"syscall"
)

// recordHead is the length of what TLS puts before each record.
const recordHead = 5

// socketConn is the connection below TLS, and knows whether bytes have arrived that were not read yet.
//
// The library has a goroutine that reads an idle connection, but it may come too late: a request may be written while
// the bytes of a response that was not requested are here already, and would then be answered by them.
type socketConn struct {
	net.Conn
	socket syscall.RawConn // nil: not known what the kernel holds
	told   receiver        // nil: nobody is told
	ask    func(fd uintptr)
	holds  bool // what ask found; only the goroutine that writes asks

	fetch func(fd uintptr) bool // what follows is for it; only the goroutine that reads fetches
	room  []byte
	n     int
	err   error

	head [recordHead]byte // of a record, as far as it came; only the goroutine that reads knows of it
	got  int              // how much of head came
	left int              // of the record

	// chunk bounds what one read takes beyond the record that has begun, in bytes; 0: nothing does. crypto/tls keeps the largest
	// buffer that it ever needed: 16 to 32 KiB after a document, for as long as the connection lives.
	chunk int

	idle   atomic.Bool   // the reader waits for a new record
	waited atomic.Bool   // there is a waiter for that
	wake   chan struct{} // wakes the waiter; holds one
}

// receiver is a connection that is told of bytes which were read from its socket, past its own Read.
type receiver interface{ Received() }

func newSocketConn(c net.Conn) *socketConn {
	k := &socketConn{Conn: c, wake: make(chan struct{}, 1)}
	k.told, _ = c.(receiver)
	k.ask = func(fd uintptr) { k.holds = readable(fd) }
	k.fetch = k.fetchFrom
	if s, ok := c.(syscall.Conn); ok {
		if socket, err := s.SyscallConn(); err == nil {
			k.socket = socket
		}
	}
	return k
}

// Read implements net.Conn. crypto/tls calls it when it has no whole record left.
func (s *socketConn) Read(p []byte) (int, error) {
	if s.chunk > 0 {
		p = p[:min(len(p), s.left+s.chunk)]
	}
	n, err := s.readSocket(p)
	if n > 0 && s.told != nil {
		s.told.Received()
	}
	s.trackRecords(p[:n])
	return n, err
}

// readConn is readSocket where the kernel cannot be asked.
func (s *socketConn) readConn(p []byte) (int, error) {
	s.setIdle()
	n, err := s.Conn.Read(p)
	s.idle.Store(false)
	return n, err
}

// setIdle notes that the reader is about to wait, if it is for a new record.
func (s *socketConn) setIdle() {
	if s.got == 0 && s.left == 0 {
		s.idle.Store(true)
		s.notify()
	}
}

// notify wakes the waiter for an idle socket.
func (s *socketConn) notify() {
	if !s.waited.Load() {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default: // woken already
	}
}

// trackRecords keeps account of where TLS records begin.
func (s *socketConn) trackRecords(p []byte) {
	for len(p) > 0 {
		if s.left > 0 {
			n := min(s.left, len(p))
			s.left -= n
			p = p[n:]
			continue
		}
		n := copy(s.head[s.got:], p)
		p = p[n:]
		if s.got += n; s.got == recordHead {
			s.got, s.left = 0, int(s.head[3])<<8|int(s.head[4])
		}
	}
}

// empty reports whether everything that has arrived was read and is whole records, as far as that is known.
//
// The kernel is asked before the reader: a reader that takes what the kernel had does not become idle until it has
// dealt with it.
func (s *socketConn) empty() bool {
	s.holds = false
	if s.socket != nil && s.socket.Control(s.ask) != nil {
		return false
	}
	return !s.holds && s.idle.Load()
}
