package server

import (
	"errors"
	"net"
	"os"
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
		"a connection that may pause": {func(c *stallConn, _ net.Conn) { c.patient.Store(true) }, time.Hour, time.Hour},
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
