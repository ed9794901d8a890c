package frame_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"golang.org/x/net/http2"

	"portico.dev/internal/httpengine/portico/http2/frame"
)

// pattern returns n bytes that depend on their position.
func pattern(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i*7 + i>>8)
	}
	return p
}

var sizesAroundRooms = []int{0, 1, 8, 9, 246, 247, 248, 256, 257, 4086, 4087, 4088, 4096, 4097, 8192, 16383, 16384, 0, 3, 16384, 16384, 1, 4000, 4000, 90}

// pieces reads at most n bytes at once.
type pieces struct {
	from io.Reader
	n    int
}

func (p pieces) Read(b []byte) (int, error) { return p.from.Read(b[:min(len(b), p.n)]) }

func TestReaderIgnoresReadBoundaries(t *testing.T) {
	var sent bytes.Buffer
	framer := http2.NewFramer(&sent, nil)
	for i, n := range sizesAroundRooms {
		if err := framer.WriteRawFrame(http2.FrameType(i%12), http2.Flags(i*31), uint32(i*3), pattern(n)); err != nil {
			t.Fatal(err)
		}
	}
	for name, read := range map[string]func(io.Reader) io.Reader{
		"all at once":                func(r io.Reader) io.Reader { return r },
		"byte by byte":               iotest.OneByteReader,
		"halves":                     iotest.HalfReader,
		"the last bytes with an end": iotest.DataErrReader,
		"a header at a time":         func(r io.Reader) io.Reader { return pieces{r, 9} },
		"1000 at a time":             func(r io.Reader) io.Reader { return pieces{r, 1000} },
		"a TLS record at a time":     func(r io.Reader) io.Reader { return pieces{r, 16384} },
	} {
		for _, already := range []int{0, 5, 9, 4096, 5000, 20000} {
			t.Run(name, func(t *testing.T) {
				b := sent.Bytes()
				r := frame.NewReader(io.MultiReader(bytes.NewReader(b[:already]), read(bytes.NewReader(b[already:]))))
				defer r.Close()
				for i, n := range sizesAroundRooms {
					f, err := r.Next()
					if err != nil {
						t.Fatalf("Next for frame %d failed: %v, want no error", i, err)
					}
					if f.Type != frame.Type(i%12) || f.Flags != uint8(i*31) || f.Stream != uint32(i*3) || !bytes.Equal(f.Payload, pattern(n)) {
						t.Fatalf("frame %d of %d bytes = type %d, flags %#x, stream %d, %d bytes, want the frame written", i, n, f.Type, f.Flags, f.Stream, len(f.Payload))
					}
				}
				if _, err := r.Next(); err != io.EOF {
					t.Errorf("Next after all frames: error = %v, want io.EOF", err)
				}
			})
		}
	}
}

func TestReaderReportsEndOfInput(t *testing.T) {
	whole := []byte{0, 0, 4, 6, 0, 0, 0, 0, 0, 'a', 'b', 'c', 'd'}
	reset := errors.New("reset by peer")
	for _, test := range []struct {
		name   string
		input  []byte
		end    error
		frames int
		want   error
	}{
		{"before anything", nil, io.EOF, 0, io.EOF},
		{"between two frames", whole, io.EOF, 1, io.EOF},
		{"within a header", whole[:8], io.EOF, 0, io.ErrUnexpectedEOF},
		{"between a header and its payload", whole[:9], io.EOF, 0, io.ErrUnexpectedEOF},
		{"within a payload", whole[:12], io.EOF, 0, io.ErrUnexpectedEOF},
		{"within the second header", append(bytes.Clone(whole), 0), io.EOF, 1, io.ErrUnexpectedEOF},
		{"another error between frames", whole, reset, 1, reset},
		{"another error within a payload", whole[:12], reset, 0, reset},
		{"a frame that is too long", []byte{0, 0x40, 1, 0, 0, 0, 0, 0, 1}, io.EOF, 0, frame.ErrFrameTooLarge},
		{"the longest frame there is", []byte{0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1}, io.EOF, 0, frame.ErrFrameTooLarge},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := frame.NewReader(io.MultiReader(bytes.NewReader(test.input), iotest.ErrReader(test.end)))
			defer r.Close()
			for i := range test.frames {
				if _, err := r.Next(); err != nil {
					t.Fatalf("Next for frame %d failed: %v, want no error", i, err)
				}
			}
			if _, err := r.Next(); err != test.want { //nolint:errorlint // callers compare with io.EOF
				t.Errorf("Next error = %v, want %v", err, test.want)
			}
		})
	}
}

func TestReaderClearsReservedBit(t *testing.T) {
	r := frame.NewReader(bytes.NewReader([]byte{0, 0, 0, 0, 0, 0x80, 0, 0, 1}))
	if f, err := r.Next(); err != nil || f.Stream != 1 {
		t.Errorf("Next = stream %d, error %v, want stream 1 without the reserved bit", f.Stream, err)
	}
}

func TestReaderSkipsPreface(t *testing.T) {
	r := frame.NewReader(iotest.OneByteReader(bytes.NewReader([]byte(frame.Preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"))))
	if b, err := r.Skip(len(frame.Preface)); err != nil || string(b) != frame.Preface {
		t.Fatalf("Skip = %q, error %v, want the client preface", b, err)
	}
	if f, err := r.Next(); err != nil || f.Type != frame.Settings {
		t.Errorf("Next after Skip = %v, error %v, want SETTINGS", f, err)
	}
}

// FuzzReader checks that Reader splits input at the frame lengths, independent of the sizes of the reads.
func FuzzReader(f *testing.F) {
	f.Add([]byte{0, 0, 4, 6, 0, 0, 0, 0, 0, 'a', 'b', 'c', 'd', 0, 0, 0, 4, 1, 0, 0, 0, 0}, 3, 2)
	f.Add(append([]byte{0, 0x40, 0, 0x20, 0, 0, 0, 0, 1}, make([]byte, 16384)...), 5000, 9)
	f.Add([]byte{0, 0x40, 1, 0x20, 0, 0, 0, 0, 1}, 1, 0)
	f.Fuzz(func(t *testing.T, input []byte, piece, already int) {
		already = max(0, min(already, len(input)))
		r := frame.NewReader(io.MultiReader(bytes.NewReader(input[:already]), pieces{bytes.NewReader(input[already:]), max(1, piece)}))
		defer r.Close()
		for rest := input; ; {
			got, err := r.Next()
			if len(rest) < frame.HeaderLen {
				if want := map[bool]error{true: io.EOF, false: io.ErrUnexpectedEOF}[len(rest) == 0]; err != want {
					t.Fatalf("Next error = %v, want %v", err, want)
				}
				return
			}
			n := int(rest[0])<<16 | int(rest[1])<<8 | int(rest[2])
			switch {
			case n > frame.MaxFrame:
				if err != frame.ErrFrameTooLarge {
					t.Fatalf("Next for a frame of %d bytes: error = %v, want ErrFrameTooLarge", n, err)
				}
				return
			case len(rest) < frame.HeaderLen+n:
				if err != io.ErrUnexpectedEOF {
					t.Fatalf("Next for an incomplete frame: error = %v, want io.ErrUnexpectedEOF", err)
				}
				return
			case err != nil:
				t.Fatal(err)
			case got.Type != frame.Type(rest[3]) || got.Flags != rest[4] || !bytes.Equal(got.Payload, rest[9:9+n]):
				t.Fatalf("Next = %v, want the frame %x", got, rest[:9+n])
			}
			rest = rest[9+n:]
		}
	})
}

// OnPartial supports timeouts for header blocks. It is called only for a frame that has arrived incompletely.
func TestReaderReportsPartialFrames(t *testing.T) {
	whole := []byte{0, 0, 2, 1, 4, 0, 0, 0, 1, 'a', 'b'}
	for name, test := range map[string]struct {
		read io.Reader
		want int
	}{
		"all at once":                  {bytes.NewReader(whole), 0},
		"a header, and then its bytes": {pieces{bytes.NewReader(whole), 9}, 1},
		"all but a byte":               {pieces{bytes.NewReader(whole), 10}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			told := 0
			r := frame.NewReader(test.read)
			r.OnPartial = func(k frame.Type) {
				if told++; k != frame.Headers {
					t.Errorf("OnPartial received type %d, want HEADERS", k)
				}
			}
			if f, err := r.Next(); err != nil || string(f.Payload) != "ab" {
				t.Fatalf("Next = %v, error %v, want a frame with payload ab", f, err)
			}
			if told != test.want {
				t.Errorf("OnPartial called %d times, want %d", told, test.want)
			}
		})
	}
}
