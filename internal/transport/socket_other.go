//go:build !linux

package transport

import (
	"net"
	"syscall"
)

// Other kernels have no such option: pings remain, and keep-alives.
func setUserTimeout(syscall.RawConn) error { return nil }
func relaxUserTimeout(net.Conn) error      { return nil }
