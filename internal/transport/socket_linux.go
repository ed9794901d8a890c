package transport

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// userTimeout is how long written data may stay unacknowledged. Without it the kernel retransmits to an
	// unreachable peer for about a quarter of an hour, and a blocked write prevents pings on an HTTP/2 connection.
	userTimeout = 3 * time.Second
	// patientTimeout applies to HTTP/1.1 and upgraded connections. Linux also counts the time with a closed window. A
	// paused reader is not a failure there, while HTTP/2 has its own windows and reads continuously.
	patientTimeout = 2 * time.Minute
)

func setUserTimeout(c syscall.RawConn) error { return setTimeout(c, userTimeout) }

func relaxUserTimeout(c net.Conn) error {
	for { // unwrap tunnel connections and TLS to the tunnel's server
		around, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = around.NetConn()
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	return setTimeout(raw, patientTimeout)
}

func setTimeout(c syscall.RawConn, d time.Duration) error {
	var err error
	if controlErr := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	}); controlErr != nil {
		return controlErr
	}
	return err
}

// readable reports whether the kernel has data or an end of file for the socket. It returns true on errors.
func readable(fd uintptr) bool {
	poll := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLRDHUP}}
	n, err := unix.Poll(poll[:], 0)
	return n > 0 || err != nil
}

// readSocket reads available data, waiting for it if necessary. The reader is marked as busy before data leaves the
// kernel. Otherwise there would be a moment in which the data is in neither place.
func (s *socketConn) readSocket(p []byte) (int, error) {
	if s.socket == nil || len(p) == 0 {
		return s.readConn(p)
	}
	s.room, s.n, s.err = p, 0, nil
	err := s.socket.Read(s.fetch)
	s.room = nil
	s.idle.Store(false)
	if s.err != nil {
		err = s.err
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		op.Op = "read" // the usual name instead of raw-read
	}
	return s.n, err
}

// fetchFrom reads once and reports whether there was data, an end of file or an error.
func (s *socketConn) fetchFrom(fd uintptr) bool {
	s.idle.Store(false)
	n, err := syscall.Read(int(fd), s.room) // like package net, so that the race detector recognizes it
	for err == syscall.EINTR {
		n, err = syscall.Read(int(fd), s.room)
	}
	switch {
	case err == syscall.EAGAIN:
		s.setIdle()
		return false
	case err != nil:
		s.err = &net.OpError{Op: "read", Net: s.LocalAddr().Network(), Source: s.LocalAddr(), Addr: s.RemoteAddr(), Err: os.NewSyscallError("read", err)}
	case n == 0:
		s.err = io.EOF
	default:
		s.n = n
	}
	return true
}
