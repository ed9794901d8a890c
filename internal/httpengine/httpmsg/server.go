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

// Date returns the value of the Date header.
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

// BatchWriter is implemented by connections below TLS that can delay writes: data written between BeginBatch and EndBatch
// is written together.
type BatchWriter interface {
	BeginBatch()
	EndBatch() error
}

// MaxTLSRecord is the maximum size of the data in a TLS record.
const MaxTLSRecord = 16 << 10

// BatchRecords returns a writer to nc. If raw, the connection below TLS, is a BatchWriter, the records of a large write are
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

// Overload protection of servers: it determines which connections are closed and which users' requests are refused when
// memory is short.

// ClientClass is the class of the users of a connection. Handlers authenticate each request and report the result to the
// server through a method that its http.ResponseWriter may have:
//
//	Authenticated(privileged bool)
//
// A handler that holds memory for its request reports it through another method, with a negative n when it releases the
// memory:
//
//	ChargeMemory(n int64)
type ClientClass = int32

// Classes of users. A connection has the class of its last authenticated request.
const (
	Unauthenticated ClientClass = iota
	Ordinary
	Privileged // refused last
)

// ClassOf returns the class of an authenticated user.
func ClassOf(privileged bool) ClientClass {
	if privileged {
		return Privileged
	}
	return Ordinary
}

// ConnMemory is a connection and the memory that it holds.
type ConnMemory struct {
	// Bytes is the memory that the server can measure.
	Bytes int64
	Conn  interface {
		// Cut ends the connection's work for users who are not privileged. It does not wait.
		Cut()
	}
}

// MinConnMemory is the minimum memory of a connection for Cut. Cutting smaller connections would not help and might affect
// any client.
const MinConnMemory = 64 << 10

// RequestOverhead is the per-request memory outside the measured buffers: the handler's stack and the server's structures.
const RequestOverhead = 16 << 10
