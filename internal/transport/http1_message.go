package transport

import "bytes"

// message follows one direction of an HTTP/1.1 connection: what the library writes, to know what is asked and when the
// next request begins, and what the backend answers, to refuse what has more than one reading.
//
// net/http's client is lenient with answers: it joins folded lines, ends lines at a bare LF, takes a blank before the
// colon, forgets a Content-Length beside a coding, and lets protocols be switched by whoever likes. Each is a way to have
// one reader see another answer than the next one does (attack row A28).
type message struct {
	place   spot
	field   field
	chunked bool
	trailer bool // the header lines are those after the last chunk
	old     bool // HTTP/1.0
	bare    bool // an answer that has no body whatever its head says, or the request for one
	upgrade bool // a request with an Upgrade header, or the answer to one
	lengths bool // has a Content-Length
	status  int  // of an answer
	at      int  // how far into the status line, the name, the value or the chunk's size
	left    uint64
	word    [longestField]byte // a name, as far as it came with earlier reads
}

// spot is what the next byte of a message belongs to.
type spot uint8

const (
	between     spot = iota // messages
	statusLine              // of an answer
	methodName              // of a request
	firstLine               // the rest of it
	lineStart               // of a header
	headerName              // of a header
	headerValue             // of a header
	lineEnd                 // LF
	headEnd                 // LF of the empty line
	body                    // of known length
	untilClose              // the rest of the connection
	chunkSize               // digits
	chunkNote               // an extension
	chunkHead               // LF after the size
	chunkData
	chunkCR // after the data
	chunkLF // after the data
	blind   // another protocol
)

// await makes m an answer that is yet to come. bare is whether it has no body whatever its head says, as that to HEAD;
// upgrade is whether it may switch protocols.
func (m *message) await(bare, upgrade bool) {
	*m = message{place: statusLine, bare: bare, upgrade: upgrade}
}

// write makes m a request that is about to be written.
func (m *message) write() { *m = message{place: methodName} }

// next takes bytes until they or the message are at their end, and returns how many it took. done is whether the message
// is over: an interim answer is not. With an error, which is an answerError, good is how many of them are beyond doubt.
func (m *message) next(p []byte) (n, good int, done bool, err error) {
	for n < len(p) {
		if k := m.pass(p[n:]); k > 0 {
			n += k
			if m.place == body && m.left == 0 {
				return n, n, true, nil
			}
			continue
		}
		if done, err = m.take(p[n]); err != nil {
			if good = n; m.place < chunkSize {
				good = bytes.LastIndexByte(p[:n], '\n') + 1 // part of a line could be taken for a whole one
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

// pass takes as many bytes as mean nothing by themselves, and returns how many.
func (m *message) pass(p []byte) int {
	switch m.place {
	case body, chunkData:
		k := min(m.left, uint64(len(p)))
		if m.left -= k; m.left == 0 && m.place == chunkData {
			m.place = chunkCR
		}
		return int(k)
	case untilClose, blind:
		return len(p)
	case firstLine, chunkNote:
		return textLength(p)
	case headerName:
		k := tokenLength(p)
		m.keep(p[:k])
		return k
	case lineStart, headerValue:
		return m.passLines(p)
	}
	return 0
}

// passLines takes header lines that come whole and do not matter, and the value of one that does not matter.
func (m *message) passLines(p []byte) int {
	n := 0
	for {
		if m.place == lineStart {
			k := tokenLength(p[n:])
			if k == 0 || n+k == len(p) || p[n+k] != ':' {
				return n
			}
			m.field, m.place, m.at = fieldOf(p[n:n+k]), headerValue, 0
			n += k + 1
		}
		if m.field >= fieldLength {
			return n
		}
		n += textLength(p[n:])
		if m.field != fieldOther || n+1 >= len(p) || p[n] != '\r' || p[n+1] != '\n' {
			return n
		}
		m.place = lineStart
		n += 2
	}
}

// take takes one byte that means something. It does not take one that it refuses.
func (m *message) take(c byte) (done bool, err error) {
	switch m.place {
	case statusLine:
		return false, m.statusByte(c)
	case methodName:
		if c == ' ' {
			m.place = firstLine
			m.bare = m.at == len("HEAD") && string(m.word[:m.at]) == "HEAD"
		} else {
			m.keep([]byte{c})
		}
	case firstLine:
		m.place = lineEnd
		return false, mustEnd(c)
	case lineStart:
		return false, m.startLine(c)
	case headerName:
		return false, m.endOfName(c)
	case headerValue:
		return false, m.valueByte(c)
	case lineEnd:
		m.place = lineStart
		return false, mustBe(c, '\n', errBareCR)
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

// statusByte takes a byte of "HTTP/1.x nnn" and of what ends it.
func (m *message) statusByte(c byte) error {
	const proto = "HTTP/1."
	at := m.at
	m.at++
	ok := true
	switch {
	case at < len(proto):
		ok = c == proto[at]
	case at == len(proto):
		m.old = c == '0'
		ok = c == '0' || c == '1'
	case at == len(proto)+1:
		ok = c == ' '
	case at < len(proto)+5:
		m.status = 10*m.status + int(c-'0')
		ok = '0' <= c && c <= '9' && m.status > 0
	case c == ' ':
		m.place = firstLine
	case c == '\n':
		return errBareLF
	default:
		m.place = lineEnd
		ok = c == '\r'
	}
	if !ok {
		return errStatusLine
	}
	return nil
}

func (m *message) startLine(c byte) error {
	switch c {
	case '\r':
		m.place = headEnd
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
		m.place, m.at = headerName, 0
		m.keep([]byte{c})
	}
	return nil
}

// endOfName takes what ends a name that did not come whole, or is none.
func (m *message) endOfName(c byte) error {
	switch c {
	case ':':
		m.field = fieldOther
		if m.at <= len(m.word) {
			m.field = fieldOf(m.word[:m.at])
		}
		m.place, m.at = headerValue, 0
		return nil
	case '\r', '\n':
		return errNoColon
	}
	return errName
}

// keep remembers a part of a name, as far as it may matter.
func (m *message) keep(part []byte) {
	if m.at < len(m.word) {
		copy(m.word[m.at:], part)
	}
	m.at += len(part)
}
