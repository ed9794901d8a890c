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

// A write to somebody who does not read ends, however long ago the last one was; one that reads at times keeps the
// connection; and a deadline that somebody else gave is left alone.
func TestStalledWrites(t *testing.T) {
	const limit = 8 * time.Second
	for name, test := range map[string]struct {
		before   func(c *stallConn, peer net.Conn)
		from, to time.Duration
	}{
		"the first write":            {func(*stallConn, net.Conn) {}, limit, limit},
		"a write soon after another": {func(c *stallConn, peer net.Conn) { exchangeByte(c, peer); <-time.After(limit / 10) }, limit * 7 / 8, limit},
		"a write after a long pause": {func(c *stallConn, peer net.Conn) { exchangeByte(c, peer); <-time.After(10 * limit) }, limit, limit},
		"somebody else's deadline": {func(c *stallConn, _ net.Conn) {
			_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // a pipe takes it
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
					t.Errorf("it took %s: %v", took, err)
				}
				if test.to < time.Hour && !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error(err)
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

// Records that belong together are written together, but not more of them than a slow client can take.
func TestRecordsAreGathered(t *testing.T) {
	c := &counted{}
	s := newStallConn(c, 0)
	s.BeginBatch()
	for range 5 {
		if n, err := s.Write(make([]byte, 16<<10)); n != 16<<10 || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := s.EndBatch(); err != nil {
		t.Fatal(err)
	}
	if want := []int{32 << 10, 32 << 10, 16 << 10}; !slices.Equal(c.writes, want) {
		t.Errorf("written %d, want %d", c.writes, want)
	}
	_, _ = s.Write([]byte("x"))
	if len(c.writes) != 4 {
		t.Error("what comes afterwards waits")
	}
	c.err = net.ErrClosed
	s.BeginBatch()
	_, _ = s.Write([]byte("x"))
	if err := s.EndBatch(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a write that failed: %v", err)
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
