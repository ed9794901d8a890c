package transport

import (
	"net"
	"sync/atomic"
	"syscall"
)

// recordHead is the length of what TLS puts before each record.
const recordHead = 5

// intake is the connection below TLS, and knows whether something has come that nobody has looked at.
//
// The library has a goroutine that reads an idle connection, but it may come too late: a request may be written while the
// bytes of an answer that nobody asked for are here already, and would then be answered by them.
type intake struct {
	net.Conn
	socket syscall.RawConn // nil: not known what the kernel holds
	ask    func(fd uintptr)
	holds  bool // what ask found; only the goroutine that writes asks

	fetch func(fd uintptr) bool // what follows is for it; only the goroutine that reads fetches
	room  []byte
	n     int
	err   error

	head [recordHead]byte // of a record, as far as it came; only the goroutine that reads knows of it
	got  int              // how much of head came
	left int              // of the record

	rests   atomic.Bool   // the reader waits for a new record
	awaited atomic.Bool   // somebody waits for that
	turn    chan struct{} // told of it; holds one
}

func newIntake(c net.Conn) *intake {
	k := &intake{Conn: c, turn: make(chan struct{}, 1)}
	k.ask = func(fd uintptr) { k.holds = readable(fd) }
	k.fetch = k.fetchFrom
	if s, ok := c.(syscall.Conn); ok {
		if socket, err := s.SyscallConn(); err == nil {
			k.socket = socket
		}
	}
	return k
}

// Read implements net.Conn. crypto/tls calls it when it has no whole record left.
func (k *intake) Read(p []byte) (int, error) {
	n, err := k.take(p)
	k.follow(p[:n])
	return n, err
}

// takePlainly is take where the kernel cannot be asked.
func (k *intake) takePlainly(p []byte) (int, error) {
	k.rest()
	n, err := k.Conn.Read(p)
	k.rests.Store(false)
	return n, err
}

// rest says that the reader is about to wait, if it is for a new record.
func (k *intake) rest() {
	if k.got == 0 && k.left == 0 {
		k.rests.Store(true)
		k.tell()
	}
}

// tell lets somebody who waits look again.
func (k *intake) tell() {
	if !k.awaited.Load() {
		return
	}
	select {
	case k.turn <- struct{}{}:
	default: // told, and not looked yet
	}
}

// follow keeps account of where records begin.
func (k *intake) follow(p []byte) {
	for len(p) > 0 {
		if k.left > 0 {
			n := min(k.left, len(p))
			k.left -= n
			p = p[n:]
			continue
		}
		n := copy(k.head[k.got:], p)
		p = p[n:]
		if k.got += n; k.got == recordHead {
			k.got, k.left = 0, int(k.head[3])<<8|int(k.head[4])
		}
	}
}

// empty reports whether everything that has come was read and is whole records, as far as that is known.
//
// The kernel is asked before the reader: a reader that takes what the kernel had does not rest until it has dealt with it.
func (k *intake) empty() bool {
	k.holds = false
	if k.socket != nil && k.socket.Control(k.ask) != nil {
		return false
	}
	return !k.holds && k.rests.Load()
}
