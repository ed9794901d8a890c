// Package client is an HTTP/2 client for backends. A Conn is one connection, on a TLS session that its creator has
// verified.
//
// One goroutine reads a connection. The goroutine of a request writes HEADERS and a body that is in memory, and then waits.
// A body that is long, or arrives slowly, has a separate goroutine until it is sent or no longer needed. The package starts
// no other goroutines and no timers: the owner of a Conn calls Check regularly, and timeouts are counted in checks. A
// process that did not run for a second has checked once.
//
// # Guarantees
//
//   - A request fails with an *Error. Its Kind describes how far the request got. Unsent, Unprocessed and Refused prove
//     that the server did not process it (RFC 9113, section 8.7).
//   - The end of a request's context ends the request immediately, except while the kernel accepts no bytes of the
//     connection: a writer then waits until pings time out.
//   - The header of a response of up to 16 KiB is held until the rest has arrived, at most until the next Check. If the
//     connection fails before, the request has failed and no response has begun.
//   - The memory of a response is limited by its stream's window, the number of streams by the server's SETTINGS. The
//     connection's window is returned as bytes arrive, so that an unread response does not block others.
//   - Frames without use are limited, in bursts and over time (frames.go). The time that the server takes for messages
//     required by the protocol is limited too (timeouts.go).
//   - A protocol violation by the server ends the stream or the connection, as defined in RFC 9113.
package client

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/httpengine/portico/http2/frame"
)

const (
	// streamWindow is the maximum size of the unread part of a response.
	streamWindow = 512 << 10
	// connWindow does not limit memory, because it is returned as bytes arrive: an unread response only uses up its
	// stream's window.
	connWindow = 8 << 20
	// maxStreamsPerConn is the maximum number of streams on a connection if the server sets no limit, or a higher one.
	maxStreamsPerConn = 1000
	// maxFields is the maximum number of fields in a header block.
	maxFields = 4 << 10
	// closeTimeout limits the time for closing messages to a server that may be gone.
	closeTimeout = 250 * time.Millisecond
)

// Conn is a connection to a server. It is safe for concurrent use.
type Conn struct {
	config     engine.ClientConfig
	nc         net.Conn
	tls        *tls.ConnectionState // nil without TLS
	w          *frame.Writer
	maxStreams atomic.Int64 // concurrent streams
	checks     atomic.Int64
	heldCount  atomic.Int64  // streams with a held header; written with mu held
	reads      atomic.Uint64 // reads that returned bytes
	draining   atomic.Bool   // accepts no more requests; written with mu held
	closed     atomic.Bool   // written with mu held
	// acknowledged is set when the server has acknowledged the client's SETTINGS. headerBlockSince is the check in which a
	// header block was found incomplete, plus 1, or 0. cancelled counts requests that the client reset, until the reader
	// processes the count.
	acknowledged     atomic.Bool
	headerBlockSince atomic.Int64
	cancelled        atomic.Int64

	settingsReceived chan struct{} // closed when the server's first SETTINGS have arrived
	done             chan struct{} // closed when the connection is closed

	mu      sync.Mutex // guards the fields below
	streams map[uint32]*stream
	newest  uint32        // stream id
	err     *engine.Error // why the connection ended; nil while it is open

	reader   reader
	timeouts timeouts
}

// New starts HTTP/2 on nc, and returns when the server's SETTINGS have arrived. It closes nc if it fails, or if ctx ends
// before. Errors are *Error.
func New(ctx context.Context, nc net.Conn, config engine.ClientConfig) (*Conn, error) {
	c := &Conn{
		config: config, nc: nc, streams: make(map[uint32]*stream), settingsReceived: make(chan struct{}), done: make(chan struct{}),
	}
	if with, ok := nc.(*tls.Conn); ok {
		state := with.ConnectionState()
		c.tls = &state
	}
	c.maxStreams.Store(maxStreamsPerConn)
	c.w = frame.NewWriter(nc, 1, func(err error) { c.fail(&engine.Error{Kind: engine.Lost, Err: err}) })
	c.reader.init(c)
	c.timeouts.begin(&c.config)
	c.w.WritePreface()
	_ = c.w.WriteSettings(true,
		frame.Setting{ID: frame.EnablePush, Value: 0},
		frame.Setting{ID: frame.InitialWindowSize, Value: streamWindow},
		frame.Setting{ID: frame.MaxHeaderListSize, Value: uint32(config.MaxHeaderBytes)}) // fail is called for errors
	_ = c.w.WriteWindowUpdate(0, connWindow-frame.InitialWindow) // fail is called for errors
	go c.run()
	select {
	case <-c.settingsReceived:
		return c, nil
	case <-c.done:
	case <-ctx.Done():
		c.fail(canceledError(ctx))
		<-c.done
	}
	return nil, c.err
}

// run reads until the connection ends, and closes it.
func (c *Conn) run() {
	defer close(c.done)
	err := c.reader.run()
	c.fail(classify(err))
	force := time.AfterFunc(closeTimeout, c.closeNow)
	defer force.Stop()
	if code, ok := codeOf(c.closeError()); ok {
		_ = c.w.WriteGoAway(0, code, "") // the server may not read it
		c.w.WaitFlushed()
	}
	c.w.Close(frame.ErrClosed)
	_ = c.nc.Close() // the connection has already ended
	c.w.Wait()
	c.reader.close()
	if c.config.OnClose != nil {
		c.config.OnClose()
	}
}

// closeNow closes the connection without TLS's closing message.
func (c *Conn) closeNow() {
	if with, ok := c.nc.(*tls.Conn); ok {
		_ = with.NetConn().Close() // ends reads and writes too
		return
	}
	_ = c.nc.Close() // ends reads and writes too
}

// fail ends the connection and all its requests. Only the first reason is recorded.
func (c *Conn) fail(why *engine.Error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = why
	c.draining.Store(true)
	c.closed.Store(true)
	streams := c.streams
	c.streams = nil
	c.mu.Unlock()
	if why.Kind == engine.PingTimeout {
		c.closeNow() // the server would not read a closing message
	} else {
		_ = c.nc.SetReadDeadline(time.Unix(1, 0)) // makes run return from its read
	}
	for _, s := range streams {
		s.fail(why, noReset)
	}
}

// closeError returns why the connection ended.
func (c *Conn) closeError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		return nil
	}
	return c.err
}

// ProtocolError returns the server's protocol violation, if that ended the connection.
func (c *Conn) ProtocolError() error {
	err := c.closeError()
	if _, ok := codeOf(err); !ok {
		return nil
	}
	return err
}

// Window returns the connection's current send window, and the largest one so far.
func (c *Conn) Window() (now, most int64) { return c.w.ConnWindow() }

// Available reports whether the connection accepts further requests, within MaxStreams.
func (c *Conn) Available() bool { return !c.draining.Load() }

// Closed reports whether the connection has ended.
func (c *Conn) Closed() bool { return c.closed.Load() }

// PingTimedOut reports whether the connection ended because pings were not answered.
func (c *Conn) PingTimedOut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil && c.err.Kind == engine.PingTimeout
}

// MaxStreams returns the number of concurrent requests that the server allows.
func (c *Conn) MaxStreams() int { return int(c.maxStreams.Load()) }

// Close ends the connection and all its requests. It does not wait.
func (c *Conn) Close() { c.fail(&engine.Error{Kind: engine.Lost, Err: errClosed}) }

// Wait returns when the connection is closed and all its goroutines have ended.
func (c *Conn) Wait() { <-c.done }

// lookup returns the stream of a frame, or nil if it has ended. A stream that was never opened is an error.
func (c *Conn) lookup(id uint32) (*stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.streams[id]; s != nil {
		return s, nil
	}
	if id&1 == 0 || id > c.newest {
		return nil, frame.ConnError{Code: frame.ProtocolError, Reason: "a frame for a stream that was never begun"}
	}
	return nil, nil
}

// drained reports whether the connection accepts no more requests and has none. The caller must hold mu.
func (c *Conn) drained() bool { return c.draining.Load() && len(c.streams) == 0 && c.err == nil }

var _ http.RoundTripper = (*Conn)(nil)
