//go:build !linux

package transport

import (
	"net"
	"syscall"
)

// Other kernels have no such option: pings remain, and keep-alives.
func setUserTimeout(syscall.RawConn) error { return nil }
func relaxUserTimeout(net.Conn) error      { return nil }

// socketPeek cannot ask on other kernels: connections are not used a second time there.
type socketPeek struct{}

func (*socketPeek) pending(syscall.RawConn) (some, known bool) { return false, false }
