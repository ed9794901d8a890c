package server

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strconv"
)

// framedConn is an HTTP/1.1 connection whose requests have one reading.
//
// net/http is lenient where a proxy before us may not be: it takes a body with both a length and a coding and forgets
// the length, joins folded header lines, and ends lines at a bare LF. Each is a seam that requests are smuggled
// through (attack row A19), and none leaves a trace in http.Request. So the bytes are looked at on their way in:
// such a request is answered 400 and the connection ends. HTTP/2 has no such seams.
type framedConn struct {
	net.Conn
	state tls.ConnectionState // for every request
	scan  framing
	// below is told when the connection may become one of another protocol.
	below *stallConn
}

const refusal = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"

// Read implements net.Conn.
func (c *framedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	bad := c.scan.next(p[:n])
	if c.scan.upgrades {
		c.below.patient.Store(true)
	}
	if bad != nil {
		body := `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":` + strconv.Quote(bad.Error()) + `,"reason":"BadRequest","code":400}`
		head := bytes.Replace([]byte(refusal), []byte("%d"), strconv.AppendInt(nil, int64(len(body)), 10), 1)
		_, _ = c.Conn.Write(append(head, body...)) // whoever sends such bytes need not hear of it
		_ = c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// framing follows the requests of one connection: head, body of known length, the next head. After a body without a
// known length, or an upgrade, the connection carries no further request and nothing more is looked at.
type framing struct {
	blind  bool
	body   uint64 // bytes of the present body still to come
	line   []byte // the present header line as far as its value
	length int    // of the present line
	cr     bool   // the byte before was a CR
	first  bool   // the request line is over

	hasLength, hasCoding, upgrades bool
	contentLength                  uint64
}

var (
	errBareLF  = errors.New("a line of the request ends without CR")
	errFolded  = errors.New("a header of the request is folded over two lines")
	errFraming = errors.New("the request has both a Content-Length and a Transfer-Encoding")
)

// maxLine is how much of a header line is looked at: enough for the two names and the value that matter.
const maxLine = 64

func (f *framing) next(p []byte) error {
	for len(p) > 0 && !f.blind {
		if f.body > 0 {
			n := min(f.body, uint64(len(p)))
			f.body -= n
			p = p[n:]
			continue
		}
		part, rest, ended := bytes.Cut(p, lineFeed)
		if err := f.head(part); err != nil {
			return err
		}
		if !ended {
			return nil
		}
		if !f.cr {
			return errBareLF
		}
		if err := f.endOfLine(); err != nil {
			return err
		}
		p = rest
	}
	return nil
}

var lineFeed = []byte{'\n'}

// head takes a part of a line.
func (f *framing) head(part []byte) error {
	if len(part) == 0 {
		return nil
	}
	if f.length == 0 && f.first && (part[0] == ' ' || part[0] == '\t') {
		return errFolded
	}
	f.cr = part[len(part)-1] == '\r'
	f.length += len(part)
	f.line = append(f.line, part[:min(len(part), maxLine-len(f.line))]...)
	return nil
}

func (f *framing) endOfLine() error {
	line := bytes.TrimSuffix(f.line, []byte("\r"))
	empty := f.length == 1
	f.line, f.length, f.cr = f.line[:0], 0, false
	switch {
	case empty && !f.first:
		return nil // net/http too skips empty lines before a request
	case empty:
		return f.endOfHead()
	case !f.first:
		f.first = true
		return nil
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	switch {
	case bytes.EqualFold(name, []byte("Content-Length")):
		f.hasLength = true
		// What is no number is refused by net/http.
		f.contentLength, _ = strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 63)
	case bytes.EqualFold(name, []byte("Transfer-Encoding")):
		f.hasCoding = true
	case bytes.EqualFold(name, []byte("Upgrade")):
		f.upgrades = true
	}
	return nil
}

func (f *framing) endOfHead() error {
	if f.hasLength && f.hasCoding {
		return errFraming
	}
	if f.hasCoding || f.upgrades {
		f.blind = true
		return nil
	}
	f.body = f.contentLength
	f.first, f.hasLength, f.contentLength = false, false, 0
	return nil
}
