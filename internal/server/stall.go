package server

import (
	"net"
	"sync/atomic"
	"time"
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
	from atomic.Int64 // when the deadline in force was set, after made; 0: none is
}

func newStallConn(c net.Conn, limit time.Duration) *stallConn {
	return &stallConn{Conn: c, limit: limit, made: time.Now()}
}

// Write implements net.Conn.
func (c *stallConn) Write(p []byte) (int, error) {
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
