package transport

import "golang.org/x/sys/unix"

// readable reports whether the kernel has bytes for us, or the end of them. Not known counts as yes.
func readable(fd uintptr) bool {
	poll := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLRDHUP}}
	n, err := unix.Poll(poll[:], 0)
	return n > 0 || err != nil
}
