package server

import (
	"errors"
	"net"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A write to a peer that does not read ends after the limit, regardless of the time since the last write. A peer that reads sometimes keeps the
// connection. An explicit deadline is not changed.
func TestStalledWriteEndsAtLimit(t *testing.T) {
	const limit = 8 * time.Second
	for name, test := range map[string]struct {
		before   func(c *stallConn, peer net.Conn)
		from, to time.Duration
	}{
		"the first write":            {func(*stallConn, net.Conn) {}, limit, limit},
		"a write soon after another": {func(c *stallConn, peer net.Conn) { exchangeByte(c, peer); <-time.After(limit / 10) }, limit * 7 / 8, limit},
		"a write after a long pause": {func(c *stallConn, peer net.Conn) { exchangeByte(c, peer); <-time.After(10 * limit) }, limit, limit},
		"somebody else's deadline": {func(c *stallConn, _ net.Conn) {
			_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // a pipe supports it
		}, time.Second, time.Second},
		"somebody else's deadline, taken back": {func(c *stallConn, _ net.Conn) {
			_ = c.SetWriteDeadline(time.Now().Add(time.Second))
			_ = c.SetDeadline(time.Time{})
		}, limit, limit},
		"a connection that may pause": {func(c *stallConn, _ net.Conn) { c.hijacked.Store(true) }, time.Hour, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, peer := net.Pipe()
				defer ours.Close()
				c := newStallConn(ours, limit)
				test.before(c, peer)
				defer time.AfterFunc(time.Hour, func() { _ = peer.Close() }).Stop()
				start := time.Now()
				_, err := c.Write([]byte("x"))
				if took := time.Since(start); took < test.from || took > test.to {
					t.Errorf("time of the write = %s with the error %v, want %s to %s", took, err, test.from, test.to)
				}
				if test.to < time.Hour && !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("error of the write = %v, want os.ErrDeadlineExceeded", err)
				}
			})
		})
	}
}

func exchangeByte(c net.Conn, peer net.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = peer.Read(make([]byte, 1))
	}()
	_, _ = c.Write([]byte("y"))
	<-done
}

// Records of one batch are written together, in pieces that a slow client can still read in time.
func TestTLSRecordsAreWrittenInBatches(t *testing.T) {
	c := &counted{}
	s := newStallConn(c, 0)
	s.BeginBatch()
	for range 5 {
		if n, err := s.Write(make([]byte, 16<<10)); n != 16<<10 || err != nil {
			t.Fatalf("Write of 16 KiB in a batch = %d with the error %v, want all bytes", n, err)
		}
	}
	if err := s.EndBatch(); err != nil {
		t.Fatal(err)
	}
	if want := []int{32 << 10, 32 << 10, 16 << 10}; !slices.Equal(c.writes, want) {
		t.Errorf("sizes of the writes = %d, want %d", c.writes, want)
	}
	_, _ = s.Write([]byte("x"))
	if len(c.writes) != 4 {
		t.Errorf("%d writes after a write outside a batch, want 4", len(c.writes))
	}
	c.err = net.ErrClosed
	s.BeginBatch()
	_, _ = s.Write([]byte("x"))
	if err := s.EndBatch(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("EndBatch after a failed write error = %v, want net.ErrClosed", err)
	}
}

type counted struct {
	net.Conn
	writes []int
	err    error
}

func (c *counted) Write(p []byte) (int, error) {
	c.writes = append(c.writes, len(p))
	return len(p), c.err
}
