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
	// userTimeout bounds how long written bytes may stay unacknowledged. Without it the kernel retransmits into a black
	// hole for about a quarter of an hour, and a blocked write hides an HTTP/2 connection from its pings.
	userTimeout = 3 * time.Second
	// patientTimeout is for HTTP/1.1 and upgraded connections. Linux counts a closed window too, and a reader that
	// pauses is no failure there, while HTTP/2 has windows of its own and keeps reading.
	patientTimeout = 2 * time.Minute
)

func setUserTimeout(c syscall.RawConn) error { return setTimeout(c, userTimeout) }

func relaxUserTimeout(c net.Conn) error {
	for { // a connection through a tunnel, and TLS to the tunnel's server
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
