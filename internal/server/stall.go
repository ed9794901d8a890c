package server

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"portico.dev/internal/overload"
)

// stallConn is a connection below TLS on which writes time out when the client does not read (attack row D5).
// net/http would set two timers for each write. stallConn renews its deadline only after an eighth of the limit, so
// that a write may take between 7/8 of the limit and the whole limit.
type stallConn struct {
	net.Conn
	limit time.Duration // 0 means no limit
	// hijacked is set when the connection was hijacked: in its new protocol a pause is not an error.
	hijacked atomic.Bool
	// deadlineSet is set while another component has set a deadline on the connection.
	deadlineSet atomic.Bool
	created     time.Time
	// slot is released by the next Read (see handshakes). handshake is the handshake of the connection.
	slot        atomic.Pointer[chan struct{}]
	handshake   *handshake
	readLimiter *overload.ReadLimiter // throttles reads; may be nil
	limitSetAt  atomic.Int64          // when the current deadline was set, after created; 0 without a deadline

	mu    sync.Mutex // guards the fields below, and the order of writes
	batch *[]byte    // records to write together; nil if each is written at once
}

// maxBatch is two TLS records. Slow clients might not read a larger write in time.
const maxBatch = 34 << 10

var batchPool = sync.Pool{New: func() any { b := make([]byte, 0, maxBatch); return &b }}

func newStallConn(c net.Conn, limit time.Duration) *stallConn {
	return &stallConn{Conn: c, limit: limit, created: time.Now()}
}

// BeginBatch buffers writes until EndBatch, because crypto/tls writes each record separately.
func (c *stallConn) BeginBatch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batch = batchPool.Get().(*[]byte)
}

// EndBatch writes the buffered data.
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
