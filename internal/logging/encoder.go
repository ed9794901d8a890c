package logging

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"
)

// maxFieldBytes bounds each message and each field: text of clients, backends and libraries must not fill a disk.
const maxFieldBytes = 4 << 10

// singleLineEncoder is an encoder whose entries are one line each, whatever is in them (attack row E3: CVE-2021-25743).
// Both formats escape fields; the console one writes the message as it is, and libraries put text of peers there.
type singleLineEncoder struct{ zapcore.Encoder }

// Clone implements zapcore.Encoder.
func (e singleLineEncoder) Clone() zapcore.Encoder { return singleLineEncoder{e.Encoder.Clone()} }

// EncodeEntry implements zapcore.Encoder.
func (e singleLineEncoder) EncodeEntry(entry zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	entry.Message = bounded(escaped(entry.Message))
	kept := fields
	for i, f := range fields {
		text, ok := textOf(f)
		if !ok || len(text) <= maxFieldBytes {
			continue
		}
		if &kept[0] == &fields[0] {
			kept = append([]zapcore.Field(nil), fields...) // the caller's are the caller's
		}
		kept[i] = zap.String(f.Key, bounded(text))
	}
	return e.Encoder.EncodeEntry(entry, kept)
}

// textOf is the text of a field, for the kinds that have no bound.
func textOf(f zapcore.Field) (string, bool) {
	switch f.Type {
	case zapcore.StringType:
		return f.String, true
	case zapcore.ErrorType, zapcore.StringerType, zapcore.ReflectType, zapcore.ArrayMarshalerType:
		return fmt.Sprint(f.Interface), true
	}
	return "", false
}

func bounded(s string) string {
	if len(s) <= maxFieldBytes {
		return s
	}
	cut := maxFieldBytes
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

// escaped spells out what would end a line or control a terminal.
func escaped(s string) string {
	if strings.IndexFunc(s, unicode.IsControl) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unicode.IsControl(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
