package transport

import (
	"net"
	"sync/atomic"
	"syscall"
)

// recordHead is the length of a TLS record header.
const recordHead = 5

// socketConn is the connection below TLS. It detects received data that has not been read yet.
//
// net/http reads idle connections in a goroutine, but that may be too late: a request could be written when the data
// of an unrequested response has already arrived, and that data would be taken as its response.
type socketConn struct {
	net.Conn
	socket syscall.RawConn // nil if the kernel's buffer cannot be inspected
	told   receiver        // may be nil
	ask    func(fd uintptr)
	holds  bool // result of ask; used only by the writing goroutine

	fetch func(fd uintptr) bool // this and the next fields are used by fetch, only on the reading goroutine
	room  []byte
	n     int
	err   error

	head      [recordHead]byte // part of a record header; used only by the reading goroutine
	got       int              // length of the part in head
	remaining int              // rest of the current record

	// chunk limits how far one read may extend beyond the current record, in bytes. 0 means no limit. crypto/tls
	// keeps the largest buffer that it ever needed: 16 to 32 KiB after a document, for the lifetime of the
	// connection.
	chunk int

	idle   atomic.Bool   // the reader waits for a new record
	waited atomic.Bool   // a waiter for idle exists
	wake   chan struct{} // wakes the waiter; holds one element
}

// receiver is a connection that must be notified of data read directly from its socket, bypassing its Read.
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

// Read implements net.Conn. crypto/tls calls it when it has no complete record buffered.
func (s *socketConn) Read(p []byte) (int, error) {
	if s.chunk > 0 {
		p = p[:min(len(p), s.remaining+s.chunk)]
	}
	n, err := s.readSocket(p)
	if n > 0 && s.told != nil {
		s.told.Received()
	}
	s.trackRecords(p[:n])
	return n, err
}

// readConn implements readSocket where the kernel's buffer cannot be inspected.
func (s *socketConn) readConn(p []byte) (int, error) {
	s.setIdle()
	n, err := s.Conn.Read(p)
	s.idle.Store(false)
	return n, err
}

// setIdle marks the reader as idle if it is about to wait for a new record.
func (s *socketConn) setIdle() {
	if s.got == 0 && s.remaining == 0 {
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
	default: // already woken
	}
}

// trackRecords tracks the boundaries of TLS records.
func (s *socketConn) trackRecords(p []byte) {
	for len(p) > 0 {
		if s.remaining > 0 {
			n := min(s.remaining, len(p))
			s.remaining -= n
			p = p[n:]
			continue
		}
		n := copy(s.head[s.got:], p)
		p = p[n:]
		if s.got += n; s.got == recordHead {
			s.got, s.remaining = 0, int(s.head[3])<<8|int(s.head[4])
		}
	}
}

// empty reports whether all received data has been read and ends with a complete record, as far as known.
//
// The kernel is checked before the reader: a reader that takes data from the kernel does not become idle until it has
// processed it.
func (s *socketConn) empty() bool {
	s.holds = false
	if s.socket != nil && s.socket.Control(s.ask) != nil {
		return false
	}
	return !s.holds && s.idle.Load()
}
