package transport

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
)

// shortBody is the body of a response of the short lane. With its end the connection is free for the next request, or is
// closed when there may be something left on it.
type shortBody struct {
	conn     *shortConn
	reuse    bool // the connection may be used again
	response *http.Response

	mu     sync.Mutex // a Close may come while a Read waits
	length int64      // still to come; -1: unknown
	chunks io.Reader  // nil: not chunked
	err    error      // what every further Read returns
	over   bool       // the connection was given back
}

// shortResponse is a response with its body.
type shortResponse struct {
	http.Response
	body shortBody
}

// begin gives the response its body.
func (b *shortBody) begin() {
	resp := b.response
	if len(resp.Trailer) == 0 && resp.TransferEncoding != nil {
		promiseTrailers(resp)
	}
	switch {
	case bodiless(resp) || resp.ContentLength == 0:
		resp.Body = http.NoBody
		b.finish(io.EOF)
		return
	case resp.TransferEncoding != nil:
		b.chunks = httputil.NewChunkedReader(b.conn.in)
	}
	b.length = resp.ContentLength
	resp.Body = b
}

// promiseTrailers takes the names out of the Trailer header, as the library does.
func promiseTrailers(resp *http.Response) {
	values := resp.Header["Trailer"]
	delete(resp.Header, "Trailer")
	for _, v := range values {
		for name := range strings.SplitSeq(v, ",") {
			if name = http.CanonicalHeaderKey(strings.TrimSpace(name)); isToken(name) && !framing[name] {
				if resp.Trailer == nil {
					resp.Trailer = make(http.Header)
				}
				resp.Trailer[name] = nil
			}
		}
	}
}

// Ready reports whether a Read would not wait.
func (b *shortBody) Ready() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.over && b.conn.ready()
}

// Read implements io.Reader.
func (b *shortBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	n, err := b.read(p)
	if err == io.EOF && b.chunks != nil {
		err = b.readTrailers()
	}
	if err != nil {
		b.finish(err)
	}
	return n, b.err
}

func (b *shortBody) read(p []byte) (int, error) {
	switch {
	case b.chunks != nil:
		return b.chunks.Read(p)
	case b.length < 0:
		return b.conn.in.Read(p)
	}
	n, err := b.conn.in.Read(p[:min(int64(len(p)), b.length)])
	b.length -= int64(n)
	switch {
	case b.length == 0:
		return n, io.EOF
	case err == io.EOF:
		return n, io.ErrUnexpectedEOF
	}
	return n, err
}

// readTrailers reads what follows the last chunk. Trailers that would say how a message is framed are lies by now.
func (b *shortBody) readTrailers() error {
	c := b.conn
	budget := c.lane.options.MaxHeaderBytes
	if line, err := c.in.Peek(2); err != nil {
		return noEOF(err)
	} else if string(line) == "\r\n" {
		_, _ = c.in.Discard(2) // they are in the buffer
		return io.EOF
	}
	text, err := c.readLines(&budget)
	if err != nil {
		return err
	}
	// parseHeader passes over a first line, which a head has and trailers have not.
	got, err := parseHeader(text, append([]int{0}, c.ends...))
	if err != nil {
		return err
	}
	for name, values := range got {
		if framing[name] {
			return fmt.Errorf("%w: trailer %s", errMalformed, name)
		}
		if b.response.Trailer == nil {
			b.response.Trailer = make(http.Header)
		}
		b.response.Trailer[name] = values
	}
	return io.EOF
}

// finish gives the connection back. Called with mu held, or before anybody knows of b.
func (b *shortBody) finish(err error) {
	b.err = err
	if b.over {
		return
	}
	b.over = true
	watched := b.conn.unwatch()
	b.conn.giveBack(err == io.EOF && b.reuse && watched)
}

// Close gives up what was not read. A connection is cheaper to make than a body of unknown length is to read; what is
// already here is passed over.
func (b *shortBody) Close() error {
	if !b.mu.TryLock() {
		b.conn.cut() // a Read waits: it ends, and finishes
		return nil
	}
	defer b.mu.Unlock()
	if b.over {
		return nil
	}
	end := errClosedBody
	if n := b.length; b.chunks == nil && n > 0 && n <= int64(b.conn.in.Buffered()) {
		if _, err := b.conn.in.Discard(int(n)); err == nil {
			end = io.EOF
		}
	}
	b.finish(end)
	b.err = errClosedBody
	return nil
}

var errClosedBody = errors.New("the response body was closed")

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
