package http1

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"strings"

	"portico.dev/internal/httpmsg"
)

// chunks is where a chunked body is (RFC 9112, 7.1).
type chunks struct {
	within bool // the end of a chunk is still to come
	last   bool // that was the last one: trailers come
	came   http.Header
	size   int // of the trailers
	lines  int // and how many they are
	// excess is how much came that was no data (CVE-2023-39326), less what is due to each chunk.
	excess int64
}

const mostExcess = 16 << 10

var (
	errChunkLine  = errors.New("a line between chunks ends without CR, or is too long")
	errChunkSize  = errors.New("a chunk has a size that is none")
	errChunkEnd   = errors.New("a chunk is not as long as its size says")
	errExcess     = errors.New("too much of the body is no data")
	errBadTrailer = errors.New("a trailer has a name or a value that is none")
)

func (b *body) readChunked(p []byte) (int, error) {
	if b.left == 0 {
		if err := b.nextChunk(); err != nil {
			return 0, err
		}
	}
	return b.take(p)
}

// nextChunk reads what is between two chunks. After the last one it returns io.EOF.
//
// A deadline may strike anywhere in it, and it goes on there when it is called again.
func (b *body) nextChunk() error {
	in := &b.x.conn.in
	if b.chunks.last {
		return b.trailers()
	}
	if b.chunks.within {
		for len(in.unused()) < 2 {
			if err := b.more(); err != nil {
				return err
			}
		}
		if end := in.unused(); end[0] != '\r' || end[1] != '\n' {
			return errChunkEnd
		}
		in.use(2)
		b.chunks.within = false
	}
	line, err := b.line()
	if err != nil {
		return err
	}
	size, err := chunkSize(line)
	if err != nil {
		return err
	}
	excess := b.chunks.excess + int64(len(line)) + 2
	in.use(len(line) + 2)
	if size == 0 {
		b.chunks.last = true
		return b.trailers()
	}
	// One byte in a chunk may be fair; sixteen more for each, and twice the data, is what net/http bears.
	if b.chunks.excess = excess - 16 - 2*min(size, mostExcess); b.chunks.excess < 0 {
		b.chunks.excess = 0
	}
	if b.chunks.excess > mostExcess {
		return errExcess
	}
	b.left, b.chunks.within = size, true
	return nil
}

// line waits for a line, and returns it without its end. It is to be used before anything else is read.
func (b *body) line() ([]byte, error) {
	in := &b.x.conn.in
	for from := 0; ; {
		have := in.unused()
		if n := bytes.IndexByte(have[from:], '\n'); n >= 0 {
			if end := from + n; end > 0 && have[end-1] == '\r' {
				return have[:end-1], nil
			}
			return nil, errChunkLine
		}
		if from = len(have); from >= roomForReading {
			return nil, errChunkLine
		}
		if err := b.more(); err != nil {
			return nil, err
		}
	}
}

// chunkSize is plain hexadecimal digits, and perhaps an extension, which means nothing here.
func chunkSize(line []byte) (size int64, err error) {
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

// trailers reads what comes after the last chunk, and then returns io.EOF. Names that must not be there are dropped.
func (b *body) trailers() error {
	ch := b.chunks
	for {
		line, err := b.line()
		if err != nil {
			return err
		}
		text := string(line)
		b.x.conn.in.use(len(line) + 2)
		if text == "" {
			break
		}
		ch.lines++
		if ch.size += len(text); ch.size > b.x.conn.server.c.MaxHeaderBytes || ch.lines > httpmsg.MaxTrailers {
			return errExcess
		}
		name, value, ok := strings.Cut(text, ":")
		value = httpmsg.TrimBlanks(value)
		if !ok || !httpmsg.IsToken(name) || !httpmsg.ValidFieldValue(value) || httpmsg.CheckLengths(name, value) != nil {
			return errBadTrailer
		}
		if name = textproto.CanonicalMIMEHeaderKey(name); httpmsg.MayBeTrailer(name) {
			if ch.came == nil {
				ch.came = make(http.Header)
			}
			ch.came[name] = append(ch.came[name], value)
		}
	}
	if ch.came != nil && !b.over {
		r := &b.x.req
		if r.Trailer == nil {
			r.Trailer = ch.came
		} else {
			for name, values := range ch.came {
				r.Trailer[name] = values
			}
		}
	}
	return io.EOF
}
