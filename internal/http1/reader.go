package http1

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"portico.dev/internal/httpmsg"
)

// readBufferSize is what a connection that waits keeps. A larger head has a larger buffer for as long as it is read.
const readBufferSize = 4 << 10

// errBufferFull is that there is no room for more.
var errBufferFull = errors.New("the buffer is full")

// reader is what was read of a connection and not used yet.
type reader struct {
	from io.Reader
	buf  []byte
	r, w int   // what is not used yet is between them
	err  error // the end, for good
}

func (b *reader) unused() []byte { return b.buf[b.r:b.w] }

// consume has n bytes used.
func (b *reader) consume(n int) {
	b.r += n
	if b.r == b.w {
		b.r, b.w = 0, 0
	}
}

// fill reads once more. A deadline that has passed is no end: the next call may find more.
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

// readDirect reads once more, past the buffer. What it returns is either something or an error.
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

// grow makes room for more, and reports false when there is as much as there may be.
func (b *reader) grow(most int) bool {
	if len(b.buf) >= most {
		return false
	}
	larger := make([]byte, min(2*len(b.buf), most))
	b.w = copy(larger, b.buf[b.r:b.w])
	b.buf, b.r = larger, 0
	return true
}

// shrink undoes grow, if what is not used yet allows it.
func (b *reader) shrink() {
	if len(b.buf) <= readBufferSize || b.w-b.r > readBufferSize {
		return
	}
	smaller := make([]byte, readBufferSize)
	b.w = copy(smaller, b.buf[b.r:b.w])
	b.buf, b.r = smaller, 0
}

// isTimeout is about deadlines of ours. A client that has died is a timeout too, of another kind (ETIMEDOUT): that is the end.
func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// keptLineEnds is how many line ends a connection keeps room for.
const keptLineEnds = 64

// readHead reads the head of the next request: its text, and in c.ends where its lines end.
func (c *conn) readHead() (string, error) {
	if err := c.waitForRequest(); err != nil {
		return "", err
	}
	c.stage.Store(readingHead)
	c.lineEnds = c.lineEnds[:0]
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
		if n > 0 { // an empty line before a request, which old clients send after a body
			if blank {
				return "", malformed("empty lines before the request")
			}
			blank, line = true, 0
			c.in.consume(n)
			if len(c.in.unused()) > 0 {
				continue
			}
		}
		if len(c.in.unused()) == len(c.in.buf) && !c.in.grow(c.server.c.MaxHeaderBytes) {
			return "", &refusal{http.StatusRequestHeaderFieldsTooLarge, "the head of the request is too large"}
		}
		if !slow {
			slow = true
			c.setReadDeadline(time.Now().Add(c.server.c.HeaderTimeout))
			if c.server.shuttingDown.Load() { // closeIdle may have come too early
				c.setReadDeadline(time.Now().Add(lingerIdle))
			}
		}
		if err := c.in.fill(); err != nil {
			return "", err
		}
	}
}

// scanLines looks for the lines of a head from *line on, which is where the first one begins that is not known to be whole. It
// returns where the head ends, or 0 when there is more to come.
func (c *conn) scanLines(line *int) (int, error) {
	b := c.in.unused()
	if len(b) > 0 && len(c.lineEnds) == 0 && b[0] != '\r' && !httpmsg.Method.Allows(b[0]) {
		return 0, malformed("the request does not begin with a method")
	}
	for {
		n := bytes.IndexByte(b[*line:], '\n')
		if n < 0 {
			if *line >= c.server.c.MaxHeaderBytes {
				return 0, &refusal{http.StatusRequestHeaderFieldsTooLarge, "the head of the request is too large"}
			}
			return 0, nil
		}
		end := *line + n - 1 // of the line; the CR is there
		if n == 0 || b[end] != '\r' {
			return 0, malformed("a line of the request ends without CR")
		}
		if end+2 > c.server.c.MaxHeaderBytes {
			return 0, &refusal{http.StatusRequestHeaderFieldsTooLarge, "the head of the request is too large"}
		}
		if n == 1 {
			return end + 2, nil
		}
		c.lineEnds = append(c.lineEnds, int32(end))
		*line = end + 2
	}
}
