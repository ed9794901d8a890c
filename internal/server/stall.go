package server

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"portico.dev/internal/overload"
)

// stallConn is a connection whose writes may wait for the other side to read, but not for ever (attack row D5). It lies
// below TLS. The library's own bound sets two timers for each write; this one sets a timer now and then, so that a write
// may take between 7/8 of the limit and all of it.
type stallConn struct {
	net.Conn
	limit time.Duration // 0: none
	// patient is set when the connection may become one of another protocol, in which a pause is no failure.
	patient atomic.Bool
	// held is set while somebody else has given the connection a deadline.
	held atomic.Bool
	made time.Time
	// working is what the next Read gives back: see handshakes. handshake is there until the connection's has ended.
	working   atomic.Pointer[chan struct{}]
	handshake *handshake
	intake    *overload.Intake // is asked before what was read is passed on; nil: nobody is
	from      atomic.Int64     // when the deadline in force was set, after made; 0: none is

	mu       sync.Mutex // guards what follows, and keeps what is written in its order
	gathered *[]byte    // records that wait to be written together; nil: each is written at once
}

// gatherRoom is two of TLS's records. More at a time would ask too much of slow clients.
const gatherRoom = 34 << 10

var gatherRooms = sync.Pool{New: func() any { b := make([]byte, 0, gatherRoom); return &b }}

func newStallConn(c net.Conn, limit time.Duration) *stallConn {
	return &stallConn{Conn: c, limit: limit, made: time.Now()}
}

// Gather has what is written wait for more, until Release: TLS writes each of its records by itself.
func (c *stallConn) Gather() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gathered = gatherRooms.Get().(*[]byte)
}

// Release writes what waits.
func (c *stallConn) Release() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.flush()
	gatherRooms.Put(c.gathered)
	c.gathered = nil
	return err
}

// Write implements net.Conn.
func (c *stallConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gathered == nil {
		return c.write(p)
	}
	if len(*c.gathered)+len(p) > gatherRoom {
		if err := c.flush(); err != nil {
			return 0, err
		}
	}
	*c.gathered = append(*c.gathered, p...)
	return len(p), nil
}

func (c *stallConn) flush() error {
	if len(*c.gathered) == 0 {
		return nil
	}
	_, err := c.write(*c.gathered)
	*c.gathered = (*c.gathered)[:0]
	return err
}

func (c *stallConn) write(p []byte) (int, error) {
	if c.limit > 0 && !c.patient.Load() && !c.held.Load() {
		now := time.Now()
		age, from := now.Sub(c.made), time.Duration(c.from.Load())
		if from == 0 || age-from > c.limit/8 {
			c.from.Store(int64(age))
			if err := c.Conn.SetWriteDeadline(now.Add(c.limit)); err != nil {
				return 0, err
			}
		}
	}
	return c.Conn.Write(p)
}

// SetWriteDeadline implements net.Conn.
func (c *stallConn) SetWriteDeadline(at time.Time) error {
	c.hold(at)
	return c.Conn.SetWriteDeadline(at)
}

// SetDeadline implements net.Conn.
func (c *stallConn) SetDeadline(at time.Time) error {
	c.hold(at)
	return c.Conn.SetDeadline(at)
}

func (c *stallConn) hold(at time.Time) {
	c.held.Store(!at.IsZero())
	c.from.Store(0)
}
