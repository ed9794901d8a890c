package transport

import "math"

// Parsing of a message's framing: Content-Length, Transfer-Encoding and chunks.

// codingName is the only supported transfer coding.
const codingName = "chunked"

// Values and limits of the position within a header value, messageParser.pos.
const (
	valueEnded     = 1 << 20 // only whitespace may follow
	maxChunkDigits = 15      // hex digits of a chunk size: more than any real chunk has, without overflow
)

// valueByte parses a byte of a framing header's value, or the end of any other value.
func (m *messageParser) valueByte(c byte) error {
	switch {
	case m.field < fieldLength || control(c):
	case c == ' ' || c == '\t':
		if m.pos > 0 && m.pos < valueEnded {
			m.pos += valueEnded
		}
		return nil
	case m.field == fieldLength:
		return m.lengthByte(c)
	default:
		return m.codingByte(c)
	}
	if err := expectLineEnd(c); err != nil {
		return err
	}
	m.state = lineEnd
	return m.endOfValue()
}

func (m *messageParser) lengthByte(c byte) error {
	d := uint64(c - '0')
	if c < '0' || c > '9' || m.pos >= valueEnded || m.remaining > (math.MaxInt64-d)/10 {
		return errLength
	}
	if m.hasLength {
		return errTwoLengths
	}
	m.remaining = 10*m.remaining + d
	m.pos = 1
	return nil
}

func (m *messageParser) codingByte(c byte) error {
	if m.pos >= len(codingName) || lowerCase(c) != codingName[m.pos] || m.chunked {
		return errCoding
	}
	m.pos++
	return nil
}

func (m *messageParser) endOfValue() error {
	switch m.field {
	case fieldUpgrade:
		m.upgrade = m.upgrade || m.status == 0
	case fieldLength:
		switch {
		case m.trailer:
			return errTrailerFrame
		case m.hasLength:
			return errTwoLengths
		case m.pos == 0:
			return errLength
		}
		m.hasLength = true
	case fieldCoding:
		switch {
		case m.trailer:
			return errTrailerFrame
		case m.chunked || m.pos%valueEnded != len(codingName):
			return errCoding
		}
		m.chunked = true
	}
	return nil
}

// endOfHead determines how the body ends (RFC 9112, 6.3).
func (m *messageParser) endOfHead() (done bool, err error) {
	answer := m.status > 0
	switch {
	case m.trailer:
		return true, nil
	case m.chunked && m.http10:
		return false, errOldCoding
	case m.chunked && m.hasLength:
		return false, errTwoFramings
	case answer && (m.status < 200 || m.status == 204) && (m.chunked || m.remaining > 0): // RFC 9110, 8.6; RFC 9112, 6.1
		return false, errNoBody
	case m.status == 101 && !m.upgrade:
		return false, errSwitched
	case m.status == 101:
		m.state = switchedProtocol
	case m.status > 0 && m.status < 200:
		m.expectResponse(m.noBody, m.upgrade)
	case answer && (m.noBody || m.status == 204 || m.status == 304):
		return true, nil
	case m.chunked:
		m.state, m.pos, m.remaining = chunkSize, 0, 0
	case m.remaining > 0:
		m.state = body
	case answer && !m.hasLength:
		m.state = untilClose
	default:
		return true, nil
	}
	return false, nil
}

func (m *messageParser) chunkByte(c byte) error {
	switch m.state {
	case chunkSize:
		return m.sizeByte(c)
	case chunkExtension:
		m.state = chunkSizeLF
		return expectLineEnd(c)
	case chunkSizeLF:
		if c != '\n' {
			return errBareCR
		}
		m.state = chunkData
		if m.remaining == 0 {
			m.state, m.trailer = lineStart, true
		}
	case chunkCR:
		m.state = chunkLF
		return expectByte(c, '\r', errChunkEnd)
	case chunkLF:
		m.state, m.pos = chunkSize, 0
		return expectByte(c, '\n', errChunkEnd)
	}
	return nil
}

func (m *messageParser) sizeByte(c byte) error {
	var d byte
	switch l := lowerCase(c); {
	case '0' <= c && c <= '9':
		d = c - '0'
	case 'a' <= l && l <= 'f':
		d = l - 'a' + 10
	case c == '\r' && m.pos > 0:
		m.state = chunkSizeLF
		return nil
	case c == ';' && m.pos > 0:
		m.state = chunkExtension
		return nil
	case c == '\n' && m.pos > 0:
		return errBareLF
	default:
		return errChunkSize
	}
	if m.pos++; m.pos > maxChunkDigits {
		return errChunkSize
	}
	m.remaining = m.remaining<<4 | uint64(d)
	return nil
}

// malformedError describes an error in an HTTP/1.1 response.
type malformedError string

func (e malformedError) Error() string { return "malformed HTTP/1.1: " + string(e) }

const (
	errStatusLine   = malformedError("it does not begin with a status line of HTTP/1.0 or HTTP/1.1")
	errBareLF       = malformedError("a line ends without CR")
	errBareCR       = malformedError("a CR that ends no line")
	errControl      = malformedError("a control byte in a header")
	errFolded       = malformedError("a header is folded over two lines")
	errName         = malformedError("the name of a header is no token")
	errNoColon      = malformedError("a header line without a colon")
	errTwoLengths   = malformedError("more than one Content-Length")
	errLength       = malformedError("a Content-Length that is no plain number")
	errCoding       = malformedError("a Transfer-Encoding that is not chunked alone")
	errOldCoding    = malformedError("a Transfer-Encoding in HTTP/1.0")
	errTwoFramings  = malformedError("both a Content-Length and a Transfer-Encoding")
	errNoBody       = malformedError("a length or a coding of an answer that has no body")
	errSwitched     = malformedError("protocols were switched and nobody asked for it")
	errChunkSize    = malformedError("a chunk whose size is no plain number")
	errChunkEnd     = malformedError("a chunk that does not end where it said")
	errTrailerFrame = malformedError("a trailer that says how long the message is")
	errUnrequested  = malformedError("bytes before any request")
)
