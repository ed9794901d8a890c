package http1

import (
	"bytes"
	"net/http"
	"time"

	"portico.dev/internal/httpmsg"
)

// keptEnds is how many line ends a connection keeps room for.
const keptEnds = 64

// head reads the head of the next request: its text, and in c.ends where its lines end.
func (c *conn) head() (string, error) {
	if err := c.await(); err != nil {
		return "", err
	}
	c.stage.Store(heading)
	c.ends = c.ends[:0]
	slow, blank := false, false
	for line := 0; ; {
		n, err := c.lines(&line)
		if err != nil {
			return "", err
		}
		if n > 0 && len(c.ends) > 0 {
			text := string(c.in.unused()[:n])
			c.in.use(n)
			c.stage.Store(busy)
			return text, nil
		}
		if n > 0 { // an empty line before a request, which old clients send after a body
			if blank {
				return "", malformed("empty lines before the request")
			}
			blank, line = true, 0
			c.in.use(n)
			if len(c.in.unused()) > 0 {
				continue
			}
		}
		if len(c.in.unused()) == len(c.in.buf) && !c.in.grow(c.server.c.MaxHeaderBytes) {
			return "", &refusal{http.StatusRequestHeaderFieldsTooLarge, "the head of the request is too large"}
		}
		if !slow {
			slow = true
			c.readUntil(time.Now().Add(c.server.c.HeaderTimeout))
			if c.server.leaving.Load() { // closeIdle may have come too early
				c.readUntil(time.Now().Add(partingSilence))
			}
		}
		if err := c.in.fill(); err != nil {
			return "", err
		}
	}
}

// lines looks for the lines of a head from *line on, which is where the first one begins that is not known to be whole. It
// returns where the head ends, or 0 when there is more to come.
func (c *conn) lines(line *int) (int, error) {
	b := c.in.unused()
	if len(b) > 0 && len(c.ends) == 0 && b[0] != '\r' && !httpmsg.Method.Allows(b[0]) {
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
		c.ends = append(c.ends, int32(end))
		*line = end + 2
	}
}
