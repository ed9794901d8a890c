package frame_test

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2/hpack"

	"portico.dev/internal/httpengine/portico/http2/frame"
)

// blocks builds header blocks from data. They mostly contain complete field representations (RFC 7541, 6), which random bytes rarely
// contain.
func blocks(data []byte) (all [][]byte) {
	next := func() byte {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return b
	}
	text := func(b []byte) []byte {
		n := min(int(next()%48), len(data))
		s := string(data[:n])
		data = data[n:]
		switch how := next(); {
		case how < 0x60:
			s = []string{"a", "x-a", "content-length", "cookie", "accept", ":path", "X", ""}[how%8]
		case how >= 0xf0:
			for range how & 7 {
				s += s + "vvvvvvvvvvvvvvvvvvvvvvvvvvvvvv"
			}
		}
		if next()&1 == 0 {
			return append(append(b, byte(min(len(s), 126))), s[:min(len(s), 126)]...)
		}
		coded := hpack.AppendHuffmanString(nil, s[:min(len(s), 100)])
		if len(coded) > 126 {
			return append(b, 0)
		}
		return append(append(b, 0x80|byte(len(coded))), coded...)
	}
	for len(data) > 0 && len(all) < 8 {
		var b []byte
		for range next() % 32 {
			switch op := next(); {
			case op < 0x70:
				b = append(b, 0x80|1+next()%70)
			case op < 0x98:
				b = text(append(b, 0x40|next()%64))
			case op < 0xb8:
				b = text(text(append(b, 0x40)))
			case op < 0xc8:
				b = text(text(append(b, 0x00)))
			case op < 0xd8:
				b = text(append(b, 0x10|next()%15))
			case op < 0xe0:
				b = append(b, 0x20|next()&0x1f)
			case op < 0xe8:
				b = append(b, 0x3f, next()|0x80, next()&0x3f)
			case op < 0xf0 && len(b) > 0:
				b = slices.Concat(b, b)[:min(2*len(b), 8<<10)]
			default:
				b = append(b, next())
			}
		}
		all = append(all, b)
	}
	return all
}

// FuzzBlocks compares a Decoder with small limits with x/net's decoder without limits. A refused block must exceed a limit or contain
// an invalid field. Accepted blocks must have the same fields. Blocks after a refused one are decoded too.
func FuzzBlocks(f *testing.F) {
	f.Add([]byte("\x03\x00\x01\x00\x03\x00\x06\x02\x00\x3d"), uint16(4096), uint8(20))
	f.Add([]byte("\x02\xa0\x05hello\x60\x00\x03abc\x60\x00\x01\x00\x3d"), uint16(100), uint8(3))
	f.Add([]byte("\x0a\xa0\x01a\xf7\x00\x01b\xf7\x01\xe8\xe8\xe8\xe8\xe8"), uint16(1000), uint8(200))
	f.Fuzz(func(t *testing.T, data []byte, most uint16, fields uint8) {
		limits := frame.BlockLimits{MaxBytes: int(most) + 1, MaxFields: int(fields) + 1}
		d := frame.NewDecoder(limits)
		var want []string
		var size int
		valid := true
		theirs := hpack.NewDecoder(4096, func(f hpack.HeaderField) {
			want = append(want, f.Name, f.Value)
			size += len(f.Name) + len(f.Value) + 32
			valid = valid && (len(f.Name) > 1 && f.Name[0] == ':' && httpguts.ValidHeaderFieldName(f.Name[1:]) || httpguts.ValidHeaderFieldName(f.Name) && httpguts.ValidHeaderFieldValue(f.Value))
			for _, c := range []byte(f.Name) {
				valid = valid && (c < 'A' || c > 'Z')
			}
		})
		for _, block := range blocks(data) {
			want, size, valid = nil, 0, true
			_, refused := theirs.Write(block)
			if refused == nil {
				refused = theirs.Close()
			}
			got, err := decode(d, block)
			large := size > limits.MaxBytes || len(want)/2 > limits.MaxFields
			if code, connection := code(err); connection {
				// The decoder also limits a string in its encoded form. Huffman coding makes some strings longer.
				long := slices.ContainsFunc(want, func(s string) bool { return max(len(s), int(hpack.HuffmanEncodeLength(s))) > limits.MaxBytes })
				bomb := size > 4*limits.MaxBytes || len(want)/2 > 4*limits.MaxFields
				if errors.Is(err, frame.ErrBlockBomb) && !bomb || code == frame.CompressionError && refused == nil && !long {
					t.Fatalf("Decode(%x) error = %v, want %q as from x/net", block, err, want)
				}
				return
			}
			switch {
			case refused != nil:
				t.Fatalf("Decode(%x) succeeded, want an error as from x/net: %v", block, refused)
			case err == nil && (large || !valid || !slices.Equal(got, want)):
				t.Fatalf("Decode(%x) = %q, want %q as from x/net (%d bytes)", block, got, want, size)
			case errors.Is(err, frame.ErrBlockTooLarge) && !large, err != nil && !large && valid:
				t.Fatalf("Decode(%x) error = %v, want %q (%d bytes)", block, err, want, size)
			}
		}
	})
}
