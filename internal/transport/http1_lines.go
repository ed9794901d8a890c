package transport

import (
	"encoding/binary"
	"math/bits"
)

// field is which header a line is of, as far as it matters for where a message ends.
type field uint8

const (
	fieldOther field = iota
	fieldUpgrade
	fieldLength // from here on the value matters too
	fieldCoding
)

// longestField is the length of the longest name that matters.
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

// tokens are the bytes of a header name (RFC 9110, 5.6.2).
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

// textLength is how many bytes of p, from its beginning, may be in a header's value: all but control bytes, of which a
// tab may. Most of what comes passes through here, eight bytes at a time.
func textLength(p []byte) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	i := 0
	for len(p)-i >= 8 {
		x := binary.LittleEndian.Uint64(p[i:])
		y := x ^ 0x7f*ones
		// The lowest byte that is marked is below 0x20 or is 0x7f; those above it may be marked by its borrow.
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

func mustBe(c, want byte, wrong answerError) error {
	if c != want {
		return wrong
	}
	return nil
}

// mustEnd refuses what ends a run of text unless it is a CR.
func mustEnd(c byte) error {
	switch c {
	case '\r':
		return nil
	case '\n':
		return errBareLF
	}
	return errControl
}
