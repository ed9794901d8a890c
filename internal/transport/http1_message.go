package transport

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// messageParser parses one direction of an HTTP/1.1 connection: the requests that net/http writes, to track the kind
// of the request in flight and the start of the next one, and the backend's responses, to refuse ambiguous ones.
//
// net/http's client parses responses leniently: it joins folded lines, accepts a bare LF as the end of a line and a
// space before the colon, ignores a Content-Length next to a Transfer-Encoding, and lets any server switch protocols.
// Each can make two readers interpret a response differently (attack row A28).
type messageParser struct {
	state     parserState
	field     field
	chunked   bool
	trailer   bool // parsing header lines after the last chunk
	http10    bool // HTTP/1.0
	noBody    bool // a response without body regardless of its headers, or a request for one
	upgrade   bool // a request with an Upgrade header, or the response to one
	hasLength bool // has a Content-Length
	status    int  // of a response
	pos       int  // position in the status line, name, value or chunk size
	remaining uint64
	name      [longestField]byte // start of a name that spans several reads
}

// parserState is the element to which the next byte belongs.
type parserState uint8

const (
	betweenMessages parserState = iota // between messages
	statusLine                         // of a response
	methodName                         // of a request
	firstLine                          // rest of the status or request line
	lineStart                          // of a header
	headerName                         // of a header
	headerValue                        // of a header
	lineEnd                            // LF
	headEnd                            // LF of the empty line
	body                               // of known length
	untilClose                         // rest of the connection
	chunkSize                          // digits
	chunkExtension                     // an extension
	chunkSizeLF                        // LF after the size
	chunkData
	chunkCR          // after the data
	chunkLF          // after the data
	switchedProtocol // another protocol
)

// expectResponse prepares m for a response. bare means that it has no body regardless of its headers, like a response
// to HEAD. upgrade means that it may switch protocols.
func (m *messageParser) expectResponse(bare, upgrade bool) {
	*m = messageParser{state: statusLine, noBody: bare, upgrade: upgrade}
}

// expectRequest prepares m for a request.
func (m *messageParser) expectRequest() { *m = messageParser{state: methodName} }

// feed parses p up to the end of the message and returns the number of consumed bytes. done reports whether the
// message is complete; an interim response does not complete it. With an error, which is a malformedError, good is
// the number of bytes that are certainly valid.
func (m *messageParser) feed(p []byte) (n, good int, done bool, err error) {
	for n < len(p) {
		if k := m.skip(p[n:]); k > 0 {
			n += k
			if m.state == body && m.remaining == 0 {
				return n, n, true, nil
			}
			continue
		}
		if done, err = m.step(p[n]); err != nil {
			if good = n; m.state < chunkSize {
				good = bytes.LastIndexByte(p[:n], '\n') + 1 // a partial line could be mistaken for a complete one
			}
			return n, good, false, err
		}
		n++
		if done {
			return n, n, true, nil
		}
	}
	return n, n, false, nil
}

// skip consumes bytes that do not affect parsing and returns their number.
func (m *messageParser) skip(p []byte) int {
	switch m.state {
	case body, chunkData:
		k := min(m.remaining, uint64(len(p)))
		if m.remaining -= k; m.remaining == 0 && m.state == chunkData {
			m.state = chunkCR
		}
		return int(k)
	case untilClose, switchedProtocol:
		return len(p)
	case firstLine, chunkExtension:
		return textLength(p)
	case headerName:
		k := tokenLength(p)
		m.appendName(p[:k])
		return k
	case lineStart, headerValue:
		return m.skipLines(p)
	}
	return 0
}

// skipLines consumes complete header lines that are not relevant, and the value of a header that is not relevant.
func (m *messageParser) skipLines(p []byte) int {
	n := 0
	for {
		if m.state == lineStart {
			k := tokenLength(p[n:])
			if k == 0 || n+k == len(p) || p[n+k] != ':' {
				return n
			}
			m.field, m.state, m.pos = fieldOf(p[n:n+k]), headerValue, 0
			n += k + 1
		}
		if m.field >= fieldLength {
			return n
		}
		n += textLength(p[n:])
		if m.field != fieldOther || n+1 >= len(p) || p[n] != '\r' || p[n+1] != '\n' {
			return n
		}
		m.state = lineStart
		n += 2
	}
}

// step parses one byte. A refused byte is not consumed.
func (m *messageParser) step(c byte) (done bool, err error) {
	switch m.state {
	case statusLine:
		return false, m.statusByte(c)
	case methodName:
		if c == ' ' {
			m.state = firstLine
			m.noBody = m.pos == len("HEAD") && string(m.name[:m.pos]) == "HEAD"
		} else {
			m.appendName([]byte{c})
		}
	case firstLine:
		m.state = lineEnd
		return false, expectLineEnd(c)
	case lineStart:
		return false, m.startLine(c)
	case headerName:
		return false, m.endOfName(c)
	case headerValue:
		return false, m.valueByte(c)
	case lineEnd:
		m.state = lineStart
		return false, expectByte(c, '\n', errBareCR)
	case headEnd:
		if c != '\n' {
			return false, errBareCR
		}
		return m.endOfHead()
	default:
		return false, m.chunkByte(c)
	}
	return false, nil
}

// statusByte parses a byte of "HTTP/1.x nnn" or the byte after it.
func (m *messageParser) statusByte(c byte) error {
	const proto = "HTTP/1."
	at := m.pos
	m.pos++
	ok := true
	switch {
	case at < len(proto):
		ok = c == proto[at]
	case at == len(proto):
		m.http10 = c == '0'
		ok = c == '0' || c == '1'
	case at == len(proto)+1:
		ok = c == ' '
	case at < len(proto)+5:
		m.status = 10*m.status + int(c-'0')
		ok = '0' <= c && c <= '9' && m.status > 0
	case c == ' ':
		m.state = firstLine
	case c == '\n':
		return errBareLF
	default:
		m.state = lineEnd
		ok = c == '\r'
	}
	if !ok {
		return errStatusLine
	}
	return nil
}

func (m *messageParser) startLine(c byte) error {
	switch c {
	case '\r':
		m.state = headEnd
	case '\n':
		return errBareLF
	case ' ', '\t':
		return errFolded
	case ':':
		return errName
	default:
		if !tokens[c] {
			return errName
		}
		m.state, m.pos = headerName, 0
		m.appendName([]byte{c})
	}
	return nil
}

// endOfName parses the end of a name that spans several reads.
func (m *messageParser) endOfName(c byte) error {
	switch c {
	case ':':
		m.field = fieldOther
		if m.pos <= len(m.name) {
			m.field = fieldOf(m.name[:m.pos])
		}
		m.state, m.pos = headerValue, 0
		return nil
	case '\r', '\n':
		return errNoColon
	}
	return errName
}

// appendName stores a part of a name, up to the length of the relevant names.
func (m *messageParser) appendName(part []byte) {
	if m.pos < len(m.name) {
		copy(m.name[m.pos:], part)
	}
	m.pos += len(part)
}

// field identifies a header that is relevant to the framing.
type field uint8

const (
	fieldOther field = iota
	fieldUpgrade
	fieldLength // the value is parsed from here on
	fieldCoding
)

// longestField is the length of the longest relevant name.
const longestField = len("transfer-encoding")

func fieldOf(name []byte) field {
	switch len(name) {
	case len("upgrade"):
		return named(name, "upgrade", fieldUpgrade)
	case len("content-length"):
		return named(name, "content-length", fieldLength)
	case longestField:
		return named(name, "transfer-encoding", fieldCoding)
	}
	return fieldOther
}

func named(name []byte, lower string, f field) field {
	for i := range name {
		if lowerCase(name[i]) != lower[i] {
			return fieldOther
		}
	}
	return f
}

func lowerCase(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c | 0x20
	}
	return c
}

// tokens are the bytes allowed in a header name (RFC 9110, 5.6.2).
var tokens = func() (t [256]bool) {
	for c := byte('0'); c <= 'z'; c++ {
		t[c] = '0' <= c && c <= '9' || 'a' <= lowerCase(c) && lowerCase(c) <= 'z'
	}
	for _, c := range []byte("!#$%&'*+-.^_`|~") {
		t[c] = true
	}
	return t
}()

func tokenLength(p []byte) int {
	for i, c := range p {
		if !tokens[c] {
			return i
		}
	}
	return len(p)
}

// textLength returns the length of the prefix of p that is allowed in a header value, that is, without control bytes
// other than tab. It processes eight bytes at a time, because most data passes through it.
func textLength(p []byte) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	i := 0
	for len(p)-i >= 8 {
		x := binary.LittleEndian.Uint64(p[i:])
		y := x ^ 0x7f*ones
		// The lowest marked byte is below 0x20 or equal to 0x7f. Higher ones may be marked because of its borrow.
		mark := ((x-0x20*ones)&^x | (y-ones)&^y) & highs
		if mark == 0 {
			i += 8
			continue
		}
		at := i + bits.TrailingZeros64(mark)/8
		if p[at] != '\t' {
			return at
		}
		i = at + 1
	}
	for ; i < len(p); i++ {
		if control(p[i]) {
			break
		}
	}
	return i
}

func control(c byte) bool { return c < ' ' && c != '\t' || c == 0x7f }

func expectByte(c, want byte, wrong malformedError) error {
	if c != want {
		return wrong
	}
	return nil
}

// expectLineEnd accepts only a CR at the end of a text.
func expectLineEnd(c byte) error {
	switch c {
	case '\r':
		return nil
	case '\n':
		return errBareLF
	}
	return errControl
}
