//go:build !linux

package transport

// Other kernels are not asked: what the library's reader has taken is known in any case.
func readable(uintptr) bool { return false }

func (s *socketConn) readSocket(p []byte) (int, error) { return s.readConn(p) }

func (s *socketConn) fetchFrom(uintptr) bool { return true }
