package httpmsg

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Clock formats the Date header once a second.
type Clock struct{ last atomic.Pointer[cachedDate] }

type cachedDate struct {
	second int64
	text   string
}

// Date is the value of the Date header.
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

// BodyAllowed reports whether a response with a status may have a body.
func BodyAllowed(status int) bool { return status >= 200 && status != 204 && status != 304 }

// BatchWriter is implemented by connections below TLS that can hold writes back: what is written between BeginBatch and
// EndBatch is written together.
type BatchWriter interface {
	BeginBatch()
	EndBatch() error
}

// MaxTLSRecord is how much TLS puts into one record.
const MaxTLSRecord = 16 << 10

// BatchRecords is nc as a writer. If raw, the connection below TLS, is a BatchWriter, the records of a large write are
// written together.
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

// The overload protection of servers: which connections are closed and whose requests are refused when memory is short.

// ClientClass is the class of the users of a connection. Handlers authenticate each request and tell the server through a
// method that its http.ResponseWriter may have:
//
//	Authenticated(privileged bool)
//
// A handler that holds memory for its request reports that by another method, and later takes it back:
//
//	ChargeMemory(n int64)
type ClientClass = int32

// The classes. A connection has that of its last authenticated request.
const (
	Unauthenticated ClientClass = iota
	Ordinary
	Privileged // refused last
)

// ClassOf is the class of an authenticated user.
func ClassOf(privileged bool) ClientClass {
	if privileged {
		return Privileged
	}
	return Ordinary
}

// ConnMemory is a connection and the memory that it holds.
type ConnMemory struct {
	// Bytes is as much of that as the server knows.
	Bytes int64
	Conn  interface {
		// Cut ends the connection's work for users who are not privileged. It does not wait.
		Cut()
	}
}

// MinConnMemory is how much a connection must hold to be cut. To cut less would not help and might hit anybody.
const MinConnMemory = 64 << 10

// RequestOverhead is what a request holds beside what is counted: its handler's stack and its own structures.
const RequestOverhead = 16 << 10
