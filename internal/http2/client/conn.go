// Package client is HTTP/2 as we speak it to backends: one Conn is one connection, made on a TLS session that somebody else
// has verified.
//
// One goroutine reads a connection. The goroutine of a request writes its own HEADERS and a body that is there, and then
// waits; a body that is long, or comes slowly, has a goroutine until it is sent or nobody wants it any more. Nothing else
// is started, and there are no timers: whoever owns a Conn looks at it every so often (Look), and looks are counted, not
// time. A process that did not get to run for a second has looked once.
//
// # What is promised
//
//   - A request fails with an *Error whose Fate says how far it got. Unsent, Unprocessed and Refused are proofs that nobody
//     worked on it (RFC 9113, 8.7).
//   - The end of a request's context ends it at once, except while the kernel takes no bytes of the connection: whoever
//     writes then waits until pings find that out.
//   - The head of a response of up to 16 KiB waits for the rest, until the next Look at the most: before, nobody has seen
//     anything of it, and its failure is the request's.
//   - What a response takes in memory is bounded by its stream's window, the number of streams by the server's SETTINGS.
//     The connection's window is given back as bytes arrive, so that a response that nobody reads keeps no other waiting.
//   - What a server may send beside answers is bounded, all at once and over time (read.go), and so is how long it may take for
//     what the protocol asks of it (look.go).
//   - A server that breaks the protocol loses the stream or the connection, as RFC 9113 says.
package client

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"portico.dev/internal/http2/frame"
)

// Config is how a connection is used. All fields must be set, but for Ended.
type Config struct {
	// MaxHeaderBytes bounds the headers of a response, as RFC 9113 counts them.
	MaxHeaderBytes int
	// CheckInterval is the time between two Looks, by which the following are made into numbers of looks.
	CheckInterval time.Duration
	// PingAfter is how long nothing may be read before the server is pinged, and PingTimeout how long it may then stay
	// silent.
	PingAfter, PingTimeout time.Duration
	// HeaderTimeout bounds the time from a request to the headers of its response. It may be exceeded by a quarter.
	HeaderTimeout time.Duration
	// ProtocolTimeout is how long the server may take to acknowledge our SETTINGS, and to complete a header block that it has
	// begun: nothing else can come meanwhile.
	ProtocolTimeout time.Duration
	// OnClose, if set, is called once, when the connection is closed, on its own goroutine. It must not wait.
	OnClose func()
}

const (
	// streamWindow is how much of a response may wait for its reader.
	streamWindow = 512 << 10
	// connWindow is no bound of what is kept, since it is given back as bytes arrive: a response that nobody reads uses up
	// its stream's window and nothing else.
	connWindow = 8 << 20
	// maxStreamsPerConn is how many streams we put on a connection whose server sets no limit, or a higher one.
	maxStreamsPerConn = 1000
	// maxFields bounds the number of fields in a header block.
	maxFields = 4 << 10
	// closeTimeout bounds the polite end of a connection whose other side may be gone.
	closeTimeout = 250 * time.Millisecond
)

// Conn is a connection to a server. Its methods may be called at any time, by anybody.
type Conn struct {
	config     Config
	nc         net.Conn
	tls        *tls.ConnectionState // nil without TLS
	w          *frame.Writer
	maxStreams atomic.Int64 // streams at a time
	checks     atomic.Int64
	heldCount  atomic.Int64  // streams whose head waits; written with mu held
	reads      atomic.Uint64 // counts those that brought something
	draining   atomic.Bool   // takes no more; written with mu held
	closed     atomic.Bool   // likewise
	// acknowledged is set when the server has acknowledged our SETTINGS; blockSince is the look at which a header block was found
	// open, and one more, or 0; cancelled counts requests that we gave up, until the reader takes them.
	acknowledged     atomic.Bool
	headerBlockSince atomic.Int64
	cancelled        atomic.Int64

	settingsReceived chan struct{} // closed when the server's first SETTINGS came
	done             chan struct{} // closed when everything is over

	mu      sync.Mutex // guards what follows
	streams map[uint32]*stream
	newest  uint32 // stream
	err     *Error // why it ended; nil while it lives

	reader   reader
	timeouts timeouts
}

// New begins to speak HTTP/2 on nc, and returns when the server's SETTINGS arrived. It closes nc when it fails, which is
// also when ctx ends. Errors are *Error.
func New(ctx context.Context, nc net.Conn, config Config) (*Conn, error) {
	c := &Conn{
		config: config, nc: nc, streams: make(map[uint32]*stream), settingsReceived: make(chan struct{}), done: make(chan struct{}),
	}
	if with, ok := nc.(*tls.Conn); ok {
		state := with.ConnectionState()
		c.tls = &state
	}
	c.maxStreams.Store(maxStreamsPerConn)
	c.w = frame.NewWriter(nc, 1, func(err error) { c.fail(&Error{Lost, err}) })
	c.reader.init(c)
	c.timeouts.begin(&c.config)
	c.w.WritePreface()
	_ = c.w.WriteSettings(true,
		frame.Setting{ID: frame.EnablePush, Value: 0},
		frame.Setting{ID: frame.InitialWindowSize, Value: streamWindow},
		frame.Setting{ID: frame.MaxHeaderListSize, Value: uint32(config.MaxHeaderBytes)}) // fail is told of errors
	_ = c.w.WriteWindowUpdate(0, connWindow-frame.InitialWindow) // as above
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

// run reads until the connection ends, and buries it.
func (c *Conn) run() {
	defer close(c.done)
	err := c.reader.run()
	c.fail(classify(err))
	force := time.AfterFunc(closeTimeout, c.closeNow)
	defer force.Stop()
	if code, ok := codeOf(c.closeError()); ok {
		_ = c.w.WriteGoAway(0, code, "") // a courtesy
		c.w.WaitFlushed()
	}
	c.w.Close(frame.ErrClosed)
	_ = c.nc.Close() // there is nobody to tell
	c.w.Wait()
	c.reader.close()
	if c.config.OnClose != nil {
		c.config.OnClose()
	}
}

// closeNow closes the connection without a word.
func (c *Conn) closeNow() {
	if with, ok := c.nc.(*tls.Conn); ok {
		_ = with.NetConn().Close() // whoever reads or writes hears of it
		return
	}
	_ = c.nc.Close() // as above
}

// fail ends the connection and all that is under way on it. Only the first reason counts.
func (c *Conn) fail(why *Error) {
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
	if why.Kind == PingTimeout {
		c.closeNow() // there is nobody to say good-bye to
	} else {
		_ = c.nc.SetReadDeadline(time.Unix(1, 0)) // the reader ends, and buries
	}
	for _, s := range streams {
		s.fail(why, noReset)
	}
}

// closeError is why the connection ended.
func (c *Conn) closeError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		return nil
	}
	return c.err
}

// ProtocolError is how the server broke the protocol, if that is why the connection ended.
func (c *Conn) ProtocolError() error {
	err := c.closeError()
	if _, ok := codeOf(err); !ok {
		return nil
	}
	return err
}

// Window is how much may be sent of bodies on this connection at the moment, and how much that was at the most.
func (c *Conn) Window() (now, most int64) { return c.w.ConnWindow() }

// Available reports whether the connection takes further requests, if it has streams left.
func (c *Conn) Available() bool { return !c.draining.Load() }

// Closed reports whether the connection ended.
func (c *Conn) Closed() bool { return c.closed.Load() }

// PingTimedOut reports whether the connection ended because pings were not answered.
func (c *Conn) PingTimedOut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil && c.err.Kind == PingTimeout
}

// MaxStreams is how many requests the server allows at a time.
func (c *Conn) MaxStreams() int { return int(c.maxStreams.Load()) }

// Close ends the connection, and all requests on it, without waiting.
func (c *Conn) Close() { c.fail(&Error{Lost, errClosed}) }

// Wait returns when the connection is closed and nothing reads from it or writes to it.
func (c *Conn) Wait() { <-c.done }

// lookup is the stream that a frame is about, or nil when it is over. A stream that was never begun is an error.
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

// drained reports whether nothing is left to wait for. Called with mu held.
func (c *Conn) drained() bool { return c.draining.Load() && len(c.streams) == 0 && c.err == nil }

var _ http.RoundTripper = (*Conn)(nil)
