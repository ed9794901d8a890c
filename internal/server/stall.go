package server

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"portico.dev/internal/overload"
)

// stallConn is a connection below TLS whose writes time out when the client does not read (attack row D5). net/http would
// set two timers for each write. This one sets a deadline now and then, so a write may take between 7/8 of the limit and
// all of it.
type stallConn struct {
	net.Conn
	limit time.Duration // 0: none
	// hijacked is set when the connection was hijacked: in its new protocol a pause is no error.
	hijacked atomic.Bool
	// deadlineSet is set while somebody else has set a deadline on the connection.
	deadlineSet atomic.Bool
	created     time.Time
	// slot is released by the next Read (see handshakes). handshake is set until the connection's handshake has ended.
	slot        atomic.Pointer[chan struct{}]
	handshake   *handshake
	readLimiter *overload.ReadLimiter // asked after each read; nil: none
	limitSetAt  atomic.Int64          // when the present deadline was set, after created; 0: none is

	mu    sync.Mutex // guards what follows, and the order of writes
	batch *[]byte    // records that are to be written together; nil: each is written at once
}

// maxBatch is two TLS records. More at a time would ask too much of slow clients.
const maxBatch = 34 << 10

var batchPool = sync.Pool{New: func() any { b := make([]byte, 0, maxBatch); return &b }}

func newStallConn(c net.Conn, limit time.Duration) *stallConn {
	return &stallConn{Conn: c, limit: limit, created: time.Now()}
}

// BeginBatch holds writes back until EndBatch: TLS writes each record separately.
func (c *stallConn) BeginBatch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batch = batchPool.Get().(*[]byte)
}

// EndBatch writes what was held back.
func (c *stallConn) EndBatch() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.flush()
	batchPool.Put(c.batch)
	c.batch = nil
	return err
}

// Write implements net.Conn.
func (c *stallConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.batch == nil {
		return c.write(p)
	}
	if len(*c.batch)+len(p) > maxBatch {
		if err := c.flush(); err != nil {
			return 0, err
		}
	}
	*c.batch = append(*c.batch, p...)
	return len(p), nil
}

func (c *stallConn) flush() error {
	if len(*c.batch) == 0 {
		return nil
	}
	_, err := c.write(*c.batch)
	*c.batch = (*c.batch)[:0]
	return err
}

func (c *stallConn) write(p []byte) (int, error) {
	if c.limit > 0 && !c.hijacked.Load() && !c.deadlineSet.Load() {
		now := time.Now()
		age, from := now.Sub(c.created), time.Duration(c.limitSetAt.Load())
		if from == 0 || age-from > c.limit/8 {
			c.limitSetAt.Store(int64(age))
			if err := c.Conn.SetWriteDeadline(now.Add(c.limit)); err != nil {
				return 0, err
			}
		}
	}
	return c.Conn.Write(p)
}

// SetWriteDeadline implements net.Conn.
func (c *stallConn) SetWriteDeadline(at time.Time) error {
	c.noteDeadline(at)
	return c.Conn.SetWriteDeadline(at)
}

// SetDeadline implements net.Conn.
func (c *stallConn) SetDeadline(at time.Time) error {
	c.noteDeadline(at)
	return c.Conn.SetDeadline(at)
}

func (c *stallConn) noteDeadline(at time.Time) {
	c.deadlineSet.Store(!at.IsZero())
	c.limitSetAt.Store(0)
}
