//go:build !linux

package transport

import (
	"net"
	"syscall"
)

// Other kernels do not have TCP_USER_TIMEOUT. Pings and keep-alives apply instead.
func setUserTimeout(syscall.RawConn) error { return nil }
func relaxUserTimeout(net.Conn) error      { return nil }

// The kernel's buffer is not inspected on other kernels. Data taken by net/http's reader is still tracked.
func readable(uintptr) bool { return false }

func (s *socketConn) readSocket(p []byte) (int, error) { return s.readConn(p) }

func (s *socketConn) fetchFrom(uintptr) bool { return true }
