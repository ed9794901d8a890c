package http1

import "time"

// To close with something unread resets the connection: a client that sends all before it reads, as most do, would have an
// error in the middle of its upload instead of the answer that says why nobody wants it. So what still comes is read and
// dropped.
const (
	// partingSilence is when a client is taken to have said all, or to have gone.
	partingSilence = time.Second
	// partingTime and partingBytes are what is spent on it: an upload of etcd's largest object over a slow line, and no
	// more than a few tens of milliseconds of decrypting.
	partingTime  = 10 * time.Second
	partingBytes = 64 << 20
)

// part ends the connection so that the client can read the last answer. Shutdown leaves it one more silence's time, Close
// none.
func (c *conn) part() {
	if half, ok := c.net.(interface{ CloseWrite() error }); ok && half.CloseWrite() != nil {
		return
	}
	hurried := false
	last := time.Now().Add(partingTime)
	for heard := 0; heard < partingBytes; {
		n := len(c.in.unused())
		heard += n
		c.in.use(n)
		until := time.Now().Add(partingSilence)
		if c.server.leaving.Load() && !hurried {
			hurried, last = true, until
		}
		if until.After(last) {
			until = last
		}
		c.readUntil(until)
		if c.in.fill() != nil {
			return
		}
	}
}
