package frame_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"portico.dev/internal/httpengine/portico/http2/frame"
)

var someLimits = frame.BlockLimits{MaxBytes: 4096, MaxFields: 20}

// encode returns a block of these fields from x/net's encoder.
func encode(fields ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for i := 0; i+1 < len(fields); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return b.Bytes()
}

// decode returns the fields that a Decoder reads from a block.
func decode(d *frame.Decoder, block []byte) (got []string, err error) {
	err = d.Decode(block, func(name, value string) error {
		got = append(got, name, value)
		return nil
	})
	return got, err
}

// code returns the code of a stream's or a connection's error.
func code(err error) (c frame.Code, connection bool) {
	var ce frame.ConnError
	var se frame.StreamError
	switch {
	case errors.As(err, &ce):
		return ce.Code, true
	case errors.As(err, &se):
		return se.Code, false
	}
	return frame.NoError, false
}

func TestDecoderReturnsStreamOrConnectionError(t *testing.T) {
	long := strings.Repeat("v", 4000)
	var list []string
	for range 21 {
		list = append(list, "a", "b")
	}
	for _, test := range []struct {
		name       string
		block      []byte
		want       frame.Code // NoError: the block is valid
		connection bool
	}{
		{"a request", encode(":method", "GET", ":path", "/", "a", "b", "cookie", "x=1"), frame.NoError, false},
		{"nothing", nil, frame.NoError, false},
		{"every character of a token", encode("!#$%&'*+-.^_`|~09az", "x"), frame.NoError, false},
		{"as large as it may be", encode("a", strings.Repeat("v", 4096-33)), frame.NoError, false},
		{"a byte more", encode("a", strings.Repeat("v", 4096-32)), frame.EnhanceYourCalm, false},
		{"as many as may be", encode(list[:40]...), frame.NoError, false},
		{"one more", encode(list...), frame.EnhanceYourCalm, false},
		{"together too large", encode("a", long, "b", long), frame.EnhanceYourCalm, false},
		{"one string beyond all limits", encode("a", strings.Repeat("v", 5000)), frame.EnhanceYourCalm, false},
		{"a name beyond all limits", encode(strings.Repeat("v", 5000), "a"), frame.EnhanceYourCalm, false},
		{"a capital in a name", encode("Accept", "x"), frame.ProtocolError, false},
		{"an empty name", encode("", "x"), frame.ProtocolError, false},
		{"a colon", encode(":", "x"), frame.ProtocolError, false},
		{"two colons", encode("::a", "x"), frame.ProtocolError, false},
		{"a colon within", encode("a:b", "x"), frame.ProtocolError, false},
		{"a space in a name", encode("a b", "x"), frame.ProtocolError, false},
		{"a name beyond ASCII", encode("\u00e4", "x"), frame.ProtocolError, false},
		{"a line feed in a name", encode("a\n", "x"), frame.ProtocolError, false},
		{"a line feed in a value", encode("a", "x\ny"), frame.ProtocolError, false},
		{"a carriage return in a value", encode("a", "x\r"), frame.ProtocolError, false},
		{"a NUL in a value", encode("a", "x\x00y"), frame.ProtocolError, false},
		{"DEL in a value", encode("a", "x\x7f"), frame.ProtocolError, false},
		{"bytes beyond ASCII in a value", encode("a", "\xff\u00e4"), frame.NoError, false},
		{"an index that is not there", []byte{0xff, 0x80, 0x01}, frame.CompressionError, true},
		{"index 0", []byte{0x80}, frame.CompressionError, true},
		{"cut short", encode("abcdef", "ghijkl")[:5], frame.CompressionError, true},
		{"an endless integer", bytes.Repeat([]byte{0xff}, 20), frame.CompressionError, true},
		{"a table larger than allowed", []byte{0x3f, 0xe2, 0x1f}, frame.CompressionError, true},
		{"a table's size after a field", append(encode("a", "b"), 0x20), frame.CompressionError, true},
		{"bad Huffman padding", []byte{0x00, 0x81, 0xff, 0x01, 'x'}, frame.CompressionError, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := frame.NewDecoder(someLimits)
			_, err := decode(d, test.block)
			c, connection := code(err)
			if (err == nil) != (test.want == frame.NoError) || c != test.want || connection != test.connection {
				t.Fatalf("Decode error = %v, want code %v, connection error: %t", err, test.want, test.connection)
			}
			if connection {
				return
			}
			if got, err := decode(d, encode("still", "read")); err != nil || !slices.Equal(got, []string{"still", "read"}) {
				t.Errorf("next block = %q, error %v, want its fields", got, err)
			}
		})
	}
}

// Table entries of a refused block are available to later blocks.
func TestDecoderUpdatesTableFromRefusedBlocks(t *testing.T) {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	d := frame.NewDecoder(someLimits)
	refused := errors.New("refused")
	for range 40 {
		_ = e.WriteField(hpack.HeaderField{Name: "x-kept", Value: strings.Repeat("k", 100)})
	}
	_ = e.WriteField(hpack.HeaderField{Name: "x-last", Value: "seen"})
	if err := d.Decode(b.Bytes(), func(string, string) error { return refused }); !errors.Is(err, refused) {
		t.Fatalf("Decode error = %v, want the error of the callback", err)
	}
	b.Reset()
	_ = e.WriteField(hpack.HeaderField{Name: "x-last", Value: "seen"})
	if b.Len() != 1 {
		t.Fatalf("block = %x, want a reference of one byte", b.Bytes())
	}
	if got, err := decode(d, b.Bytes()); err != nil || !slices.Equal(got, []string{"x-last", "seen"}) {
		t.Errorf("block after a refused one = %q, error %v, want x-last: seen", got, err)
	}
}

// An invalid field is also refused if a later block refers to it, even if it was added after another error.
func TestDecoderRejectsInvalidTableEntries(t *testing.T) {
	for name, field := range map[string][2]string{"name": {"x bad", "value"}, "value": {"x-bad", "line\nend"}} {
		for before, already := range map[string]error{"first": nil, "after an error": errors.New("refused")} {
			t.Run(name+", "+before, func(t *testing.T) {
				d := frame.NewDecoder(someLimits)
				var b bytes.Buffer
				e := hpack.NewEncoder(&b)
				_ = e.WriteField(hpack.HeaderField{Name: "x-good", Value: "value"})
				_ = e.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
				err := d.Decode(b.Bytes(), func(string, string) error { return already })
				var wrong frame.StreamError
				if already == nil && !errors.As(err, &wrong) || already != nil && !errors.Is(err, already) {
					t.Fatalf("Decode of a block with an invalid field: error = %v, want a StreamError or the callback's error", err)
				}
				if _, err := decode(d, []byte{0xbe}); !errors.As(err, &wrong) || wrong.Code != frame.ProtocolError {
					t.Errorf("Decode of a reference to an invalid field: error = %v, want PROTOCOL_ERROR", err)
				}
				if got, err := decode(d, []byte{0xbf}); err != nil || !slices.Equal(got, []string{"x-good", "value"}) {
					t.Errorf("Decode of a reference to a valid field = %q, error %v, want the field", got, err)
				}
			})
		}
	}
}

// A block of many references costs as much as the limits allow, independent of the size of the referenced fields.
func TestDecoderStopsCallingAtItsLimit(t *testing.T) {
	block := encode("bomb", strings.Repeat("b", 3000))
	block = append(block, bytes.Repeat([]byte{0xbe}, 60_000)...)
	d := frame.NewDecoder(someLimits)
	got, err := decode(d, block)
	if !errors.Is(err, frame.ErrBlockBomb) || len(got) != 2 {
		t.Errorf("callback received %d fields, error %v, want an end at the limit", len(got)/2, err)
	}
}

// A block slightly over the limit is probably a mistake. It is decoded to its end, so that later blocks can be decoded.
func TestD15OversizedBlocksAreDecodedToTheirEnd(t *testing.T) {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	d := frame.NewDecoder(someLimits)
	for i := range 3 * someLimits.MaxBytes / 1000 {
		_ = e.WriteField(hpack.HeaderField{Name: "x-filler", Value: strings.Repeat(string(rune('a'+i%20)), 900), Sensitive: true})
	}
	_ = e.WriteField(hpack.HeaderField{Name: "x-last", Value: "seen"})
	if _, err := decode(d, b.Bytes()); !errors.Is(err, frame.ErrBlockTooLarge) {
		t.Errorf("Decode of a large block: error = %v, want ErrBlockTooLarge", err)
	}
	b.Reset()
	_ = e.WriteField(hpack.HeaderField{Name: "x-last", Value: "seen"})
	if got, err := decode(d, b.Bytes()); err != nil || !slices.Equal(got, []string{"x-last", "seen"}) {
		t.Errorf("block after the large one = %q, error %v, want x-last: seen", got, err)
	}
}

// BenchmarkDecodeOversized decodes the two kinds of blocks that exceed the limits of a server.
func BenchmarkDecodeOversized(b *testing.B) {
	const limit = 64<<10 + 320
	var plain bytes.Buffer
	e := hpack.NewEncoder(&plain)
	for range 125 {
		_ = e.WriteField(hpack.HeaderField{Name: "x-filler", Value: strings.Repeat("a", 1300), Sensitive: true})
	}
	for name, block := range map[string][]byte{
		"references of a byte": append(encode("bomb", strings.Repeat("b", 3000)), bytes.Repeat([]byte{0xbe}, 2*limit-4000)...),
		"references to little": bytes.Repeat([]byte{0x82}, 2*limit),
		"literals":             plain.Bytes(),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				d := frame.NewDecoder(frame.BlockLimits{MaxBytes: limit, MaxFields: limit / 32})
				if err := d.Decode(block, func(string, string) error { return nil }); err == nil {
					b.Fatal("Decode of an oversized block succeeded, want an error")
				}
			}
		})
	}
}

// FuzzDecoder compares the Decoder with x/net's. Blocks that both accept must have the same fields.
func FuzzDecoder(f *testing.F) {
	f.Add(encode(":method", "GET", "a", "b"), encode("a", "b"))
	f.Add([]byte{0x3f, 0xe1, 0x1f, 0x82}, []byte{0x82, 0x20})
	f.Add([]byte{0xff, 0x80, 0x01}, []byte{})
	f.Fuzz(func(t *testing.T, one, two []byte) {
		d := frame.NewDecoder(frame.BlockLimits{MaxBytes: 1 << 20, MaxFields: 1 << 20})
		var want []string
		theirs := hpack.NewDecoder(4096, func(f hpack.HeaderField) { want = append(want, f.Name, f.Value) })
		theirs.SetMaxStringLength(1 << 20)
		for _, block := range [][]byte{one, two} {
			want = nil
			_, refused := theirs.Write(block)
			if refused == nil {
				refused = theirs.Close()
			}
			got, err := decode(d, block)
			_, connection := code(err)
			if connection != (refused != nil) {
				t.Fatalf("Decode error = %v, want a connection error as from x/net: %v", err, refused)
			}
			if connection {
				return
			}
			if err == nil && !slices.Equal(got, want) || err != nil && len(got) > len(want) {
				t.Fatalf("Decode = %q, want %q as from x/net; error %v", got, want, err)
			}
			for i := 0; i < len(got); i += 2 {
				// Pseudo header fields are checked by separate tables, not by the Decoder.
				if strings.ContainsAny(got[i], "ABCDEFGHIJKLMNOPQRSTUVWXYZ \r\n\x00") || !strings.HasPrefix(got[i], ":") && strings.ContainsAny(got[i+1], "\r\n\x00") {
					t.Fatalf("Decode accepted the field %q, want an error", got[i:i+2])
				}
			}
		}
	})
}

func newFrame(kind frame.Type, flags uint8, stream uint32, payload []byte) *frame.Frame {
	return &frame.Frame{Type: kind, Flags: flags, Stream: stream, Payload: payload}
}

func TestBlockJoinsFrames(t *testing.T) {
	const end, last, padded, priority = frame.FlagEndStream, frame.FlagEndHeaders, frame.FlagPadded, frame.FlagPriority
	headers, more := frame.Headers, frame.Continuation
	onNothing := "\x00\x00\x00\x00\x10"
	for _, test := range []struct {
		name   string
		frames []*frame.Frame
		want   string
		end    bool
		code   frame.Code
	}{
		{name: "one frame", frames: []*frame.Frame{newFrame(headers, last, 1, []byte("abc"))}, want: "abc"},
		{name: "one frame that ends the stream", frames: []*frame.Frame{newFrame(headers, last|end, 1, []byte("abc"))}, want: "abc", end: true},
		{name: "an empty block", frames: []*frame.Frame{newFrame(headers, last, 1, nil)}},
		{name: "three frames", frames: []*frame.Frame{
			newFrame(headers, end, 1, []byte("ab")), newFrame(more, 0, 1, []byte("cd")), newFrame(more, last, 1, []byte("ef")),
		}, want: "abcdef", end: true},
		{name: "END_STREAM on a CONTINUATION means nothing", frames: []*frame.Frame{
			newFrame(headers, 0, 1, []byte("ab")), newFrame(more, last|end, 1, []byte("cd")),
		}, want: "abcd"},
		{name: "all of it in a CONTINUATION", frames: []*frame.Frame{newFrame(headers, 0, 1, nil), newFrame(more, last, 1, []byte("ab"))}, want: "ab"},
		{name: "nothing more in the last CONTINUATION", frames: []*frame.Frame{newFrame(headers, 0, 1, []byte("ab")), newFrame(more, last, 1, nil)}, want: "ab"},
		{name: "padded", frames: []*frame.Frame{newFrame(headers, last|padded, 1, []byte("\x03abc\x00\x00\x00"))}, want: "abc"},
		{name: "nothing but padding", frames: []*frame.Frame{newFrame(headers, last|padded, 1, []byte("\x03\x00\x00\x00"))}},
		{name: "with a priority", frames: []*frame.Frame{newFrame(headers, last|priority, 1, []byte(onNothing+"abc"))}, want: "abc"},
		{name: "padded, with a priority", frames: []*frame.Frame{newFrame(headers, last|padded|priority, 1, []byte("\x02"+onNothing+"abc\x00\x00"))}, want: "abc"},
		{name: "padding as long as the frame", frames: []*frame.Frame{newFrame(headers, last|padded, 1, []byte("\x04abc"))}, code: frame.ProtocolError},
		{name: "padding longer than the frame", frames: []*frame.Frame{newFrame(headers, last|padded, 1, []byte("\xffabc"))}, code: frame.ProtocolError},
		{name: "padded, without a length", frames: []*frame.Frame{newFrame(headers, last|padded, 1, nil)}, code: frame.FrameSizeError},
		{name: "a priority that is cut short", frames: []*frame.Frame{newFrame(headers, last|priority, 1, []byte("abcd"))}, code: frame.FrameSizeError},
		{name: "padding over the priority", frames: []*frame.Frame{newFrame(headers, last|padded|priority, 1, []byte("\x03"+onNothing))}, code: frame.FrameSizeError},
		{name: "depends on itself", frames: []*frame.Frame{newFrame(headers, last|priority, 1, []byte("\x80\x00\x00\x01\x10abc"))}, code: frame.ProtocolError},
		{name: "as long as allowed", frames: []*frame.Frame{
			newFrame(headers, 0, 1, make([]byte, 60)), newFrame(more, last, 1, make([]byte, 40)),
		}, want: string(make([]byte, 100))},
		{name: "a byte longer", frames: []*frame.Frame{
			newFrame(headers, 0, 1, make([]byte, 60)), newFrame(more, last, 1, make([]byte, 41)),
		}, code: frame.EnhanceYourCalm},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := frame.NewBlockAssembler(100)
			for i, f := range test.frames {
				block, ends, err := b.Add(f)
				if i < len(test.frames)-1 {
					if err != nil || block != nil || b.OpenStream() != f.Stream {
						t.Fatalf("Add of frame %d = %q, %v, open stream %d, want no block yet and stream %d", i, block, err, b.OpenStream(), f.Stream)
					}
					continue
				}
				if c, _ := code(err); c != test.code || (err == nil) != (test.code == frame.NoError) {
					t.Fatalf("Add error = %v, want code %v", err, test.code)
				}
				if err == nil && (string(block) != test.want || ends != test.end || b.OpenStream() != 0) {
					t.Errorf("Add = %q, end %v, open stream %d, want %q, end %v and no open stream", block, ends, b.OpenStream(), test.want, test.end)
				}
			}
		})
	}
}

// CVE-2023-45288: the number of bytes and the number of empty frames are limited.
func TestBlockSizeAndEmptyFramesAreLimited(t *testing.T) {
	for name, size := range map[string]int{"full frames": 16384, "frames of a byte": 1, "empty frames": 0} {
		t.Run(name, func(t *testing.T) {
			b := frame.NewBlockAssembler(64 << 10)
			_, _, err := b.Add(newFrame(frame.Headers, 0, 1, []byte{0x82}))
			n := 0
			for ; err == nil; n++ {
				if n > 70_000 {
					t.Fatal("block accepts more than 70000 frames, want an error")
				}
				_, _, err = b.Add(newFrame(frame.Continuation, 0, 1, make([]byte, size)))
			}
			if c, connection := code(err); c != frame.EnhanceYourCalm || !connection {
				t.Errorf("Add error = %v, want the connection error ENHANCE_YOUR_CALM", err)
			}
		})
	}
}

// FuzzBlock splits a block anywhere, adds padding and priority, and writes it with x/net's Framer.
func FuzzBlock(f *testing.F) {
	f.Add([]byte("abcdefghij"), 3, 5, uint8(7), true, true)
	f.Add([]byte{}, 0, 0, uint8(0), false, false)
	f.Fuzz(func(t *testing.T, block []byte, first, second int, pad uint8, priority, end bool) {
		first = min(max(first, 0), len(block), 16000)
		second = min(max(second, first), len(block), first+16000)
		rest := block[second:]
		if len(rest) > frame.MaxFrame {
			return
		}
		var sent bytes.Buffer
		framer := http2.NewFramer(&sent, nil)
		p := http2.HeadersFrameParam{StreamID: 3, BlockFragment: block[:first], EndStream: end, EndHeaders: first == len(block), PadLength: pad}
		if priority {
			p.Priority = http2.PriorityParam{StreamDep: 1, Weight: 9}
		}
		errs := []error{framer.WriteHeaders(p)}
		if second > first {
			errs = append(errs, framer.WriteContinuation(3, second == len(block), block[first:second]))
		}
		if len(rest) > 0 {
			errs = append(errs, framer.WriteContinuation(3, true, rest))
		}
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		b, r := frame.NewBlockAssembler(1<<20), frame.NewReader(&sent)
		defer r.Close()
		for {
			f, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			got, ends, err := b.Add(&f)
			if err != nil {
				t.Fatal(err)
			}
			if b.OpenStream() != 0 {
				continue
			}
			if !bytes.Equal(got, block) || ends != end {
				t.Fatalf("assembled block = %x, end %v, want %x", got, ends, block)
			}
			return
		}
	})
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	for _, test := range []struct {
		id   frame.SettingID
		v    uint32
		want frame.Code
	}{
		{frame.EnablePush, 0, frame.NoError}, {frame.EnablePush, 1, frame.NoError}, {frame.EnablePush, 2, frame.ProtocolError},
		{frame.InitialWindowSize, 1<<31 - 1, frame.NoError}, {frame.InitialWindowSize, 1 << 31, frame.FlowControlError},
		{frame.MaxFrameSize, 16384, frame.NoError}, {frame.MaxFrameSize, 16383, frame.ProtocolError},
		{frame.MaxFrameSize, 1<<24 - 1, frame.NoError}, {frame.MaxFrameSize, 1 << 24, frame.ProtocolError},
		{0xffff, 1<<32 - 1, frame.NoError},
	} {
		t.Run(fmt.Sprint(test.id, " is ", test.v), func(t *testing.T) {
			p := []byte{byte(test.id >> 8), byte(test.id), byte(test.v >> 24), byte(test.v >> 16), byte(test.v >> 8), byte(test.v)}
			seen := 0
			err := frame.ParseSettings(newFrame(frame.Settings, 0, 0, p), func(s frame.Setting) error {
				seen++
				if s.ID != test.id || s.Value != test.v {
					t.Errorf("setting = %v, want ID %v and value %v", s, test.id, test.v)
				}
				return nil
			})
			if c, connection := code(err); c != test.want || (err != nil) != connection || (seen == 1) != (err == nil) {
				t.Errorf("ParseSettings error = %v with %d settings, want code %v", err, seen, test.want)
			}
			if err := frame.ParseSettings(newFrame(frame.Settings, 0, 0, p[:5]), nil); err == nil {
				t.Error("ParseSettings of 5 bytes: error = nil, want an error")
			}
		})
	}
}
