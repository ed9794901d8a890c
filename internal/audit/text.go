package audit

import (
	"encoding/json"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// appendTime is metav1.MicroTime's encoding.
func appendTime(b []byte, t metav1.MicroTime) []byte {
	if t.IsZero() {
		return append(b, "null"...)
	}
	at := t.UTC()
	year, month, day := at.Date()
	b = append(b, '"')
	if year < 0 || year > 9999 {
		b = at.Round(0).AppendFormat(b, metav1.RFC3339Micro)
		return append(b, '"')
	}
	hour, minute, second := at.Clock()
	b = appendNumber(b, year, 1000)
	b = appendNumber(append(b, '-'), int(month), 10)
	b = appendNumber(append(b, '-'), day, 10)
	b = appendNumber(append(b, 'T'), hour, 10)
	b = appendNumber(append(b, ':'), minute, 10)
	b = appendNumber(append(b, ':'), second, 10)
	b = appendNumber(append(b, '.'), at.Nanosecond()/1000, 100_000)
	return append(b, 'Z', '"')
}

// appendNumber is n with leading zeros; first is what its first digit counts.
func appendNumber(b []byte, n, first int) []byte {
	for ; first > 0; first /= 10 {
		b = append(b, byte('0'+n/first%10))
	}
	return b
}

// How a byte stands in a JSON string.
const (
	asItIs = iota
	escaped
	otherwise // as encoding/json says
)

var inText = func() (t [256]byte) {
	for c := range t {
		switch {
		case c == '"' || c == '\\':
			t[c] = escaped // as the reasons of RBAC have them
		case c < ' ' || c == '<' || c == '>' || c == '&' || c == 0x7f || c >= utf8.RuneSelf:
			t[c] = otherwise
		}
	}
	return t
}()

// appendText is a JSON string. What encoding/json would escape is left to it.
func appendText(b []byte, s string) []byte {
	found := byte(asItIs)
	for i := range len(s) {
		found |= inText[s[i]]
	}
	if found >= otherwise {
		text, err := json.Marshal(s)
		if err != nil { // strings have no errors
			text = []byte(`""`)
		}
		return append(b, text...)
	}
	b = append(b, '"')
	if found == asItIs {
		b = append(b, s...)
		return append(b, '"')
	}
	for i := range len(s) {
		if inText[s[i]] == escaped {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return append(b, '"')
}
