package transport

import (
	"net"
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
