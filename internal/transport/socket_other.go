//go:build !linux

package transport

import (
	"net"
	"syscall"
)

// Other kernels have no such option: pings remain, and keep-alives.
func setUserTimeout(syscall.RawConn) error { return nil }
func relaxUserTimeout(net.Conn) error      { return nil }

// Other kernels are not asked: what the library's reader has taken is known in any case.
func readable(uintptr) bool { return false }

func (s *socketConn) readSocket(p []byte) (int, error) { return s.readConn(p) }

func (s *socketConn) fetchFrom(uintptr) bool { return true }
