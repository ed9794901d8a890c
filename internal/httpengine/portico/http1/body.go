package http1

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"portico.dev/internal/httpengine/httpmsg"
)

// errNoBody is the error of body for requests without one.
var errNoBody = errors.New("the request has no body")

// body is the body of a request.
type body struct {
	x *exchange
	// expects is set until 100 (Continue) is sent to a client that waits for it.
	expects atomic.Bool
	closed  atomic.Bool // by the handler

	mu        sync.Mutex    // guards the fields below, and the connection's reader
	chunks    *chunkedState // nil if the body has a length
	remaining int64         // bytes left of the body, or of the current chunk
	err       error         // io.EOF if the body was read to its end
	detached  bool          // the handler has returned
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.expects.Load() && !b.closed.Load() {
		b.x.res.sendContinue() // before mu is locked: Hijack holds the response's lock and needs mu
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.detached || b.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.read(p)
}

// Buffered implements engine.RequestBody.
func (b *body) Buffered() (n int, ended bool) { return 0, false }

// Close implements io.Closer. The rest is read after the response was sent.
func (b *body) Close() error {
	b.closed.Store(true)
	return nil
}

// read, and the functions below, must be called with mu held, or after detach.
func (b *body) read(p []byte) (n int, err error) {
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	if b.chunks != nil {
		n, err = b.readChunked(p)
	} else if n, err = b.readRemaining(p); err == nil && b.remaining == 0 {
		err = io.EOF
	}
	if err == nil || isTimeout(err) { // another deadline may follow
		return n, err
	}
	if err != io.EOF && b.x.conn.in.err != nil {
		if err = b.x.conn.in.err; err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		b.x.ctx.End() // the client has disconnected
	}
	b.err = err
	if err == io.EOF {
		b.x.conn.endBodyRead(b.x)
		b.x.conn.server.disconnects.add(b.x)
	}
	return n, err
}

// readRemaining reads from the body, or from the current chunk.
func (b *body) readRemaining(p []byte) (int, error) {
	if int64(len(p)) > b.remaining {
		p = p[:b.remaining]
	}
	c := b.x.conn
	if len(c.in.unused()) == 0 {
		if len(p) >= len(c.in.buf) {
			if !c.startBodyRead(b.x) {
				return 0, os.ErrDeadlineExceeded
			}
			n, err := c.in.readDirect(p)
			b.remaining -= int64(n)
			return n, unexpectedEOF(err)
		}
		if err := b.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.in.unused())
	c.in.consume(n)
	b.remaining -= int64(n)
	return n, nil
}

// fill waits for more bytes of the body.
func (b *body) fill() error {
	c := b.x.conn
	if !c.startBodyRead(b.x) {
		return os.ErrDeadlineExceeded
	}
	return unexpectedEOF(c.in.fill())
}

func unexpectedEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// detach ends reads by the handler. It returns the remaining length of the body; negative means unknown.
func (b *body) detach() int64 {
	if b.x == nil {
		return 0
	}
	if !b.mu.TryLock() { // a handler's goroutine may wait for bytes that the client does not send
		b.x.conn.stopReading()
		b.mu.Lock()
		defer b.x.conn.resumeReading()
	}
	defer b.mu.Unlock()
	b.detached = true
	switch {
	case b.err == io.EOF:
		return 0
	case b.err != nil || b.chunks != nil:
		return -1
	}
	return b.remaining
}

// maxDrain is the number of bytes of an unread body that are read to keep the connection.
const maxDrain = 256 << 10

// chunkDrainTimeout is how long a response waits for chunks that its handler did not read. Their size determines whether
// the connection can be kept.
const chunkDrainTimeout = 500 * time.Millisecond

// drain reads the rest of the body within a time limit, and reports whether it reached its end. It must be called after
// detach, without mu: a goroutine started by the handler must not wait that long for the error that it may not read any
// more.
func (b *body) drain(limit time.Duration) bool {
	c := b.x.conn
	c.setBodyDeadline(b.x, time.Now().Add(limit))
	room := make([]byte, readBufferSize)
	for n := 0; n <= maxDrain; {
		m, err := b.read(room)
		if err != nil {
			return err == io.EOF
		}
		n += m
	}
	return false
}

// startBodyRead makes the body's deadline the connection's deadline. It returns false if reads are stopped.
func (c *conn) startBodyRead(x *exchange) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.readStopped || c.hijacked {
		return false
	}
	x.bodyReading = true
	c.setDeadlineLocked(x.bodyDeadline)
	return true
}

// endBodyRead separates the handler's deadline from the connection.
func (c *conn) endBodyRead(x *exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x.bodyReading = false
}

// setBodyDeadline sets the deadline for reading the body.
func (c *conn) setBodyDeadline(x *exchange, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setBodyDeadlineLocked(x, at)
}

func (c *conn) setBodyDeadlineLocked(x *exchange, at time.Time) {
	x.bodyDeadline = at
	if x.bodyReading && !c.readStopped {
		c.setDeadlineLocked(at)
	}
}

func (c *conn) setDeadlineLocked(at time.Time) {
	if !c.readDeadline.Equal(at) {
		c.readDeadline = at
		_ = c.net.SetReadDeadline(at)
	}
}

// chunkedState is the state of a chunked body (RFC 9112, section 7.1).
type chunkedState struct {
	inChunk      bool // the CRLF after a chunk was not read yet
	lastSeen     bool // the last chunk was read; trailers follow
	trailer      http.Header
	trailerBytes int
	trailerLines int
	// excess is the number of bytes that were not data (CVE-2023-39326), less an allowance for each chunk.
	excess int64
}

const maxExcess = 16 << 10

var (
	errChunkLine  = errors.New("a line between chunks ends without CR, or is too long")
	errChunkSize  = errors.New("a chunk has a size that is none")
	errChunkEnd   = errors.New("a chunk is not as long as its size says")
	errExcess     = errors.New("too much of the body is no data")
	errBadTrailer = errors.New("a trailer has a name or a value that is none")
)

func (b *body) readChunked(p []byte) (int, error) {
	if b.remaining == 0 {
		if err := b.nextChunk(); err != nil {
			return 0, err
		}
	}
	return b.readRemaining(p)
}

// nextChunk reads the bytes between two chunks. After the last chunk it returns io.EOF. A deadline may pass at any point:
// the next call continues there.
func (b *body) nextChunk() error {
	in := &b.x.conn.in
	if b.chunks.lastSeen {
		return b.readTrailers()
	}
	if b.chunks.inChunk {
		for len(in.unused()) < 2 {
			if err := b.fill(); err != nil {
				return err
			}
		}
		if end := in.unused(); end[0] != '\r' || end[1] != '\n' {
			return errChunkEnd
		}
		in.consume(2)
		b.chunks.inChunk = false
	}
	line, err := b.readLine()
	if err != nil {
		return err
	}
	size, err := parseChunkSize(line)
	if err != nil {
		return err
	}
	excess := b.chunks.excess + int64(len(line)) + 2
	in.consume(len(line) + 2)
	if size == 0 {
		b.chunks.lastSeen = true
		return b.readTrailers()
	}
	// Chunks of one byte may be legitimate. Like net/http, allow sixteen bytes for each chunk, and twice the data.
	if b.chunks.excess = excess - 16 - 2*min(size, maxExcess); b.chunks.excess < 0 {
		b.chunks.excess = 0
	}
	if b.chunks.excess > maxExcess {
		return errExcess
	}
	b.remaining, b.chunks.inChunk = size, true
	return nil
}

// readLine waits for a line, and returns it without its end. It is valid until the next read.
func (b *body) readLine() ([]byte, error) {
	in := &b.x.conn.in
	for from := 0; ; {
		have := in.unused()
		if n := bytes.IndexByte(have[from:], '\n'); n >= 0 {
			if end := from + n; end > 0 && have[end-1] == '\r' {
				return have[:end-1], nil
			}
			return nil, errChunkLine
		}
		if from = len(have); from >= readBufferSize {
			return nil, errChunkLine
		}
		if err := b.fill(); err != nil {
			return nil, err
		}
	}
}

// parseChunkSize parses hexadecimal digits. An extension is ignored.
func parseChunkSize(line []byte) (size int64, err error) {
	digits, extension, _ := bytes.Cut(line, []byte(";"))
	if len(digits) == 0 || len(digits) > 16 || !httpmsg.ValidFieldValue(string(extension)) {
		return 0, errChunkSize
	}
	for _, c := range digits {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, errChunkSize
		}
		if size > (1<<63-1)>>4 {
			return 0, errChunkSize
		}
		size = size<<4 | int64(c)
	}
	return size, nil
}

// readTrailers reads the trailers after the last chunk, and then returns io.EOF. Forbidden trailers are dropped.
func (b *body) readTrailers() error {
	ch := b.chunks
	for {
		line, err := b.readLine()
		if err != nil {
			return err
		}
		text := string(line)
		b.x.conn.in.consume(len(line) + 2)
		if text == "" {
			break
		}
		ch.trailerLines++
		if ch.trailerBytes += len(text); ch.trailerBytes > b.x.conn.server.c.MaxHeaderBytes || ch.trailerLines > httpmsg.MaxTrailers {
			return errExcess
		}
		name, value, ok := strings.Cut(text, ":")
		value = httpmsg.TrimBlanks(value)
		if !ok || !httpmsg.IsToken(name) || !httpmsg.ValidFieldValue(value) || httpmsg.CheckLengths(name, value) != nil {
			return errBadTrailer
		}
		if name = textproto.CanonicalMIMEHeaderKey(name); httpmsg.ValidTrailer(name) {
			if ch.trailer == nil {
				ch.trailer = make(http.Header)
			}
			ch.trailer[name] = append(ch.trailer[name], value)
		}
	}
	if ch.trailer != nil && !b.detached {
		r := &b.x.req
		if r.Trailer == nil {
			r.Trailer = ch.trailer
		} else {
			maps.Copy(r.Trailer, ch.trailer)
		}
	}
	return io.EOF
}
