package http1

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"portico.dev/internal/httpengine/httpmsg"
)

// readBufferSize is the size of the read buffer of an idle connection. It is larger while a larger header is read.
const readBufferSize = 4 << 10

// errBufferFull is returned when the buffer is full.
var errBufferFull = errors.New("the buffer is full")

// reader buffers the data read from the connection.
type reader struct {
	from io.Reader
	buf  []byte
	r, w int   // buf[r:w] is unread
	err  error // permanent
}

func (b *reader) unused() []byte { return b.buf[b.r:b.w] }

// consume consumes n unread bytes.
func (b *reader) consume(n int) {
	b.r += n
	if b.r == b.w {
		b.r, b.w = 0, 0
	}
}

// fill reads once. A passed deadline is not permanent: the next call may read more.
func (b *reader) fill() error {
	if b.err != nil {
		return b.err
	}
	if b.r > 0 {
		copy(b.buf, b.buf[b.r:b.w])
		b.r, b.w = 0, b.w-b.r
	}
	if b.w == len(b.buf) {
		return errBufferFull
	}
	n, err := b.readDirect(b.buf[b.w:])
	b.w += n
	return err
}

// readDirect reads once into p, bypassing the buffer. It returns either bytes or an error.
func (b *reader) readDirect(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	for range 100 {
		n, err := b.from.Read(p)
		if err != nil && !isTimeout(err) {
			b.err = err
		}
		if n > 0 {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, io.ErrNoProgress
}

// grow doubles the buffer. It returns false if the buffer has its maximum size.
func (b *reader) grow(most int) bool {
	if len(b.buf) >= most {
		return false
	}
	larger := make([]byte, min(2*len(b.buf), most))
	b.w = copy(larger, b.buf[b.r:b.w])
	b.buf, b.r = larger, 0
	return true
}

// shrink undoes grow, if the unread bytes allow that.
func (b *reader) shrink() {
	if len(b.buf) <= readBufferSize || b.w-b.r > readBufferSize {
		return
	}
	smaller := make([]byte, readBufferSize)
	b.w = copy(smaller, b.buf[b.r:b.w])
	b.buf, b.r = smaller, 0
}

// isTimeout reports whether a deadline set by the server has passed. The timeout of a dead client (ETIMEDOUT) is a
// different error, and permanent.
func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// keptLineEnds limits the capacity of lineEnds that a connection retains.
const keptLineEnds = 64

// readHead reads the header of the next request. It returns its text, and sets c.lineEnds.
func (c *conn) readHead() (string, error) {
	if err := c.waitForRequest(); err != nil {
		return "", err
	}
	c.stage.Store(readingHead)
	c.lineEnds = c.lineEnds[:0]
	c.large.Detach().Release()
	slow, blank := false, false
	for line := 0; ; {
		n, err := c.scanLines(&line)
		if err != nil {
			return "", err
		}
		if n > 0 && len(c.lineEnds) > 0 {
			text := string(c.in.unused()[:n])
			c.in.consume(n)
			c.stage.Store(handling)
			return text, nil
		}
		if n > 0 { // an empty line before a request: old clients send one after a body
			if blank {
				return "", malformed("empty lines before the request")
			}
			blank, line = true, 0
			c.in.consume(n)
			if len(c.in.unused()) > 0 {
				continue
			}
		}
		if len(c.in.unused()) == len(c.in.buf) && !c.in.grow(c.maxHeader()) && !(c.large.Grow() && c.in.grow(c.maxHeader())) {
			return "", &refusal{http.StatusRequestHeaderFieldsTooLarge, "the head of the request is too large"}
		}
		if !slow {
			slow = true
			c.setReadDeadline(time.Now().Add(c.server.c.HeaderTimeout))
			if c.server.shuttingDown.Load() { // closeIdle may have been called before
				c.setReadDeadline(time.Now().Add(lingerIdle))
			}
		}
		if err := c.in.fill(); err != nil {
			return "", err
		}
	}
}

// scanLines finds the lines of a header. *line is the beginning of the first line without an end so far. It returns the
// length of the header, or 0 if it is incomplete.
func (c *conn) scanLines(line *int) (int, error) {
	b := c.in.unused()
	if len(b) > 0 && len(c.lineEnds) == 0 && b[0] != '\r' && !httpmsg.Method.Allows(b[0]) {
		return 0, malformed("the request does not begin with a method")
	}
	for {
		n := bytes.IndexByte(b[*line:], '\n')
		if n < 0 {
			if *line >= c.maxHeader() {
				return 0, &refusal{http.StatusRequestHeaderFieldsTooLarge, "the head of the request is too large"}
			}
			return 0, nil
		}
		end := *line + n - 1 // of the line, where CR must be
		if n == 0 || b[end] != '\r' {
			return 0, malformed("a line of the request ends without CR")
		}
		if end+2 > c.maxHeader() {
			return 0, &refusal{http.StatusRequestHeaderFieldsTooLarge, "the head of the request is too large"}
		}
		if n == 1 {
			return end + 2, nil
		}
		if len(c.lineEnds) > httpmsg.MaxFields && !c.mayHaveField() {
			return 0, tooManyFields(c.large.Extra())
		}
		c.lineEnds = append(c.lineEnds, int32(end))
		*line = end + 2
	}
}

// maxHeader returns the limit of the current header, in bytes.
func (c *conn) maxHeader() int {
	bytes, _ := c.large.Extra()
	return c.server.c.MaxHeaderBytes + bytes
}

// mayHaveField reports whether the current header, which has MaxFields fields or more, may have another.
func (c *conn) mayHaveField() bool {
	n := len(c.lineEnds) // includes the request line, but not the next field
	_, extra := c.large.Extra()
	return n <= httpmsg.MaxFields+extra || c.large.Grow()
}

func tooManyFields(_, extra int) error {
	return ruleRefusal(httpmsg.CheckCount(httpmsg.MaxLargeFields+1, extra))
}
