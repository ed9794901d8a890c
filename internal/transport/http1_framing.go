package transport

import "math"

// What a message says of its own length, and how it keeps to it.

// codingName is the only coding there is.
const codingName = "chunked"

// Where the value of a header that matters is, beside the positions in it.
const (
	valueOver  = 1 << 20 // only blanks may follow
	mostDigits = 15      // of a chunk's size in base 16: more than any chunk has, and no overflow
)

// valueByte takes a byte of a value that matters, or what ends any other.
func (m *message) valueByte(c byte) error {
	switch {
	case m.field < fieldLength || control(c):
	case c == ' ' || c == '\t':
		if m.at > 0 && m.at < valueOver {
			m.at += valueOver
		}
		return nil
	case m.field == fieldLength:
		return m.lengthByte(c)
	default:
		return m.codingByte(c)
	}
	if err := mustEnd(c); err != nil {
		return err
	}
	m.place = lineEnd
	return m.endOfValue()
}

func (m *message) lengthByte(c byte) error {
	d := uint64(c - '0')
	if c < '0' || c > '9' || m.at >= valueOver || m.left > (math.MaxInt64-d)/10 {
		return errLength
	}
	if m.lengths {
		return errTwoLengths
	}
	m.left = 10*m.left + d
	m.at = 1
	return nil
}

func (m *message) codingByte(c byte) error {
	if m.at >= len(codingName) || lowerCase(c) != codingName[m.at] || m.chunked {
		return errCoding
	}
	m.at++
	return nil
}

func (m *message) endOfValue() error {
	switch m.field {
	case fieldUpgrade:
		m.upgrade = m.upgrade || m.status == 0
	case fieldLength:
		switch {
		case m.trailer:
			return errTrailerFrame
		case m.lengths:
			return errTwoLengths
		case m.at == 0:
			return errLength
		}
		m.lengths = true
	case fieldCoding:
		switch {
		case m.trailer:
			return errTrailerFrame
		case m.chunked || m.at%valueOver != len(codingName):
			return errCoding
		}
		m.chunked = true
	}
	return nil
}

// endOfHead decides how the body ends (RFC 9112, 6.3).
func (m *message) endOfHead() (done bool, err error) {
	answer := m.status > 0
	switch {
	case m.trailer:
		return true, nil
	case m.chunked && m.old:
		return false, errOldCoding
	case m.chunked && m.lengths:
		return false, errTwoFramings
	case answer && (m.status < 200 || m.status == 204) && (m.chunked || m.left > 0): // RFC 9110, 8.6; RFC 9112, 6.1
		return false, errNoBody
	case m.status == 101 && !m.upgrade:
		return false, errSwitched
	case m.status == 101:
		m.place = blind
	case m.status > 0 && m.status < 200:
		m.await(m.bare, m.upgrade)
	case answer && (m.bare || m.status == 204 || m.status == 304):
		return true, nil
	case m.chunked:
		m.place, m.at, m.left = chunkSize, 0, 0
	case m.left > 0:
		m.place = body
	case answer && !m.lengths:
		m.place = untilClose
	default:
		return true, nil
	}
	return false, nil
}

func (m *message) chunkByte(c byte) error {
	switch m.place {
	case chunkSize:
		return m.sizeByte(c)
	case chunkNote:
		m.place = chunkHead
		return mustEnd(c)
	case chunkHead:
		if c != '\n' {
			return errBareCR
		}
		m.place = chunkData
		if m.left == 0 {
			m.place, m.trailer = lineStart, true
		}
	case chunkCR:
		m.place = chunkLF
		return mustBe(c, '\r', errChunkEnd)
	case chunkLF:
		m.place, m.at = chunkSize, 0
		return mustBe(c, '\n', errChunkEnd)
	}
	return nil
}

func (m *message) sizeByte(c byte) error {
	var d byte
	switch l := lowerCase(c); {
	case '0' <= c && c <= '9':
		d = c - '0'
	case 'a' <= l && l <= 'f':
		d = l - 'a' + 10
	case c == '\r' && m.at > 0:
		m.place = chunkHead
		return nil
	case c == ';' && m.at > 0:
		m.place = chunkNote
		return nil
	case c == '\n' && m.at > 0:
		return errBareLF
	default:
		return errChunkSize
	}
	if m.at++; m.at > mostDigits {
		return errChunkSize
	}
	m.left = m.left<<4 | uint64(d)
	return nil
}
