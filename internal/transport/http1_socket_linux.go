package transport

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// readable reports whether the kernel has bytes for us, or the end of them. Not known counts as yes.
func readable(fd uintptr) bool {
	poll := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLRDHUP}}
	n, err := unix.Poll(poll[:], 0)
	return n > 0 || err != nil
}

// readSocket reads what has arrived, and waits for it. It is marked as busy from before bytes leave the kernel: if it
// were marked afterwards, there would be a moment in which they are nowhere.
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
		op.Op = "read" // raw-read, as it says, is in no documentation
	}
	return s.n, err
}

// fetchFrom reads once, and reports whether there was anything: bytes, their end, or an error.
func (s *socketConn) fetchFrom(fd uintptr) bool {
	s.idle.Store(false)
	n, err := syscall.Read(int(fd), s.room) // as net does, which the race detector knows
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
