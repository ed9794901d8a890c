package httpmsg

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Clock is the date as headers have it, made once a second.
type Clock struct{ last atomic.Pointer[dated] }

type dated struct {
	second int64
	text   string
}

// Date is the value of the header Date.
func (c *Clock) Date() string {
	now := time.Now()
	second := now.Unix()
	if d := c.last.Load(); d != nil && d.second == second {
		return d.text
	}
	d := &dated{second, now.UTC().Format(http.TimeFormat)}
	c.last.Store(d)
	return d.text
}

// BodyAllowed reports whether an answer with a status may have a body.
func BodyAllowed(status int) bool { return status >= 200 && status != 204 && status != 304 }

// Gatherer is what may lie below TLS: from Gather to Release, what is written waits to be written together.
type Gatherer interface {
	Gather()
	Release() error
}

// MaxRecord is what TLS puts into one record.
const MaxRecord = 16 << 10

// Gathering is nc as something to write to. The records of a large write are written together, when raw, which lies below,
// is a Gatherer.
func Gathering(nc, raw net.Conn) io.Writer {
	if below, ok := raw.(Gatherer); ok {
		return gathering{nc, below}
	}
	return nc
}

type gathering struct {
	io.Writer
	below Gatherer
}

// Write implements io.Writer.
func (g gathering) Write(p []byte) (int, error) {
	if len(p) <= MaxRecord {
		return g.Writer.Write(p)
	}
	g.below.Gather()
	n, err := g.Writer.Write(p)
	return n, errors.Join(err, g.below.Release())
}

// What servers are asked when memory is short: which connections to close, and whose requests to refuse.

// Identity is what is known of those who use a connection. Servers learn it from handlers, which authenticate each request and tell
// their http.ResponseWriter, when it has the method:
//
//	Identified(privileged bool)
//
// A handler that keeps much in memory because of its request says so, and takes it back, by another method:
//
//	Holds(n int64)
type Identity = int32

// The identities of a connection. It is that of its last request that was authenticated.
const (
	Unidentified Identity = iota
	Ordinary
	Privileged // its requests are refused last
)

// IdentityOf is the identity of a privileged user, or of any other.
func IdentityOf(privileged bool) Identity {
	if privileged {
		return Privileged
	}
	return Ordinary
}

// Holder is a connection.
type Holder struct {
	// Bytes is how much memory it holds, as far as its server knows.
	Bytes int64
	Conn  interface {
		// Cut ends what it does for users who are not privileged. It does not wait.
		Cut()
	}
}

// LeastHeld is how much a connection holds that is worth cutting: less does not help, and might be anybody's.
const LeastHeld = 64 << 10

// HeldByRequest is what a request holds beside what can be counted: its handler's stack, and what it is made of.
const HeldByRequest = 16 << 10
