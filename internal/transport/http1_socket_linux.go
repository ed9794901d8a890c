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

// take reads what has come, and waits for it. It does not rest from before bytes leave the kernel: were it to say so
// afterwards, there would be a moment in which they are nowhere.
func (k *intake) take(p []byte) (int, error) {
	if k.socket == nil || len(p) == 0 {
		return k.takePlainly(p)
	}
	k.room, k.n, k.err = p, 0, nil
	err := k.socket.Read(k.fetch)
	k.room = nil
	k.rests.Store(false)
	if k.err != nil {
		err = k.err
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		op.Op = "read" // raw-read, as it says, is nothing that anybody looks for
	}
	return k.n, err
}

// fetchFrom reads once, and reports whether there was anything: bytes, their end, or an error.
func (k *intake) fetchFrom(fd uintptr) bool {
	k.rests.Store(false)
	n, err := syscall.Read(int(fd), k.room) // as net does, which the race detector knows
	for err == syscall.EINTR {
		n, err = syscall.Read(int(fd), k.room)
	}
	switch {
	case err == syscall.EAGAIN:
		k.rest()
		return false
	case err != nil:
		k.err = &net.OpError{Op: "read", Net: k.LocalAddr().Network(), Source: k.LocalAddr(), Addr: k.RemoteAddr(), Err: os.NewSyscallError("read", err)}
	case n == 0:
		k.err = io.EOF
	default:
		k.n = n
	}
	return true
}
