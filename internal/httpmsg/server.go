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
type Clock struct{ last atomic.Pointer[cachedDate] }

type cachedDate struct {
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
	d := &cachedDate{second, now.UTC().Format(http.TimeFormat)}
	c.last.Store(d)
	return d.text
}

// BodyAllowed reports whether an answer with a status may have a body.
func BodyAllowed(status int) bool { return status >= 200 && status != 204 && status != 304 }

// BatchWriter is what may lie below TLS: from Gather to Release, what is written waits to be written together.
type BatchWriter interface {
	BeginBatch()
	EndBatch() error
}

// MaxTLSRecord is what TLS puts into one record.
const MaxTLSRecord = 16 << 10

// BatchRecords is nc as something to write to. The records of a large write are written together, when raw, which lies below,
// is a Gatherer.
func BatchRecords(nc, raw net.Conn) io.Writer {
	if below, ok := raw.(BatchWriter); ok {
		return recordWriter{nc, below}
	}
	return nc
}

type recordWriter struct {
	io.Writer
	batch BatchWriter
}

// Write implements io.Writer.
func (g recordWriter) Write(p []byte) (int, error) {
	if len(p) <= MaxTLSRecord {
		return g.Writer.Write(p)
	}
	g.batch.BeginBatch()
	n, err := g.Writer.Write(p)
	return n, errors.Join(err, g.batch.EndBatch())
}

// What servers are asked when memory is short: which connections to close, and whose requests to refuse.

// ClientClass is what is known of those who use a connection. Servers learn it from handlers, which authenticate each request and tell
// their http.ResponseWriter, when it has the method:
//
//	Authenticated(privileged bool)
//
// A handler that keeps much in memory because of its request says so, and takes it back, by another method:
//
//	ChargeMemory(n int64)
type ClientClass = int32

// The identities of a connection. It is that of its last request that was authenticated.
const (
	Unauthenticated ClientClass = iota
	Ordinary
	Privileged // its requests are refused last
)

// ClassOf is the identity of a privileged user, or of any other.
func ClassOf(privileged bool) ClientClass {
	if privileged {
		return Privileged
	}
	return Ordinary
}

// ConnMemory is a connection.
type ConnMemory struct {
	// Bytes is how much memory it holds, as far as its server knows.
	Bytes int64
	Conn  interface {
		// Cut ends what it does for users who are not privileged. It does not wait.
		Cut()
	}
}

// MinConnMemory is how much a connection holds that is worth cutting: less does not help, and might be anybody's.
const MinConnMemory = 64 << 10

// RequestOverhead is what a request holds beside what can be counted: its handler's stack, and what it is made of.
const RequestOverhead = 16 << 10
