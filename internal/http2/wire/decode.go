package wire

import (
	"golang.org/x/net/http2/hpack"

	"portico.dev/internal/handler"
)

// Limits of a header block.
type Limits struct {
	// Bytes bounds the fields as RFC 9113, 6.5.2 counts them (32 more for each).
	Bytes int
	// Fields bounds their number.
	Fields int
}

// Decoder reads header blocks. A block that is too large is read to its end all the same, as the table must follow, unless it is
// so large that the connection had better end.
type Decoder struct {
	limits Limits
	hpack  *hpack.Decoder
	each   func(name, value string) error

	bytes, fields int
	err           error
}

// NewDecoder reads blocks within limits.
func NewDecoder(l Limits) *Decoder {
	d := &Decoder{limits: l}
	d.hpack = hpack.NewDecoder(4096, d.emit)
	d.hpack.SetMaxStringLength(l.Bytes)
	return d
}

// ErrBlockTooLarge is a header block beyond Limits. It is the message's fault and not the connection's.
var ErrBlockTooLarge = StreamError{Code: EnhanceYourCalm, Why: "the header block is larger than allowed"}

// ErrBlockBomb is a header block that is large beyond any mistake. What is left of it is not read, so that the connection ends.
var ErrBlockBomb = ConnError{EnhanceYourCalm, "the header block is many times larger than allowed"}

const (
	// bombAt is how many times Limits a block may be before it is given up.
	bombAt = 4
	// decodeAtOnce is how much of a block is read before it is looked at how large it has become. References of a byte each can
	// stand for a field of 4 KiB.
	decodeAtOnce = 8 << 10
)

// Decode calls each for the fields of a whole block. Errors are a ConnError for what does not decode or is ErrBlockBomb, and
// otherwise ErrBlockTooLarge, the first error of each, or a StreamError for what no field may be.
func (d *Decoder) Decode(block []byte, each func(name, value string) error) error {
	d.each, d.bytes, d.fields, d.err = each, 0, 0, nil
	defer func() { d.each = nil }()
	var err error
	for len(block) > 0 && err == nil {
		n := min(len(block), decodeAtOnce)
		_, err = d.hpack.Write(block[:n])
		block = block[n:]
		if d.bytes > bombAt*d.limits.Bytes || d.fields > bombAt*d.limits.Fields {
			return ErrBlockBomb
		}
	}
	if err == nil {
		err = d.hpack.Close()
	}
	if err != nil {
		return ConnError{CompressionError, err.Error()}
	}
	return d.err
}

func (d *Decoder) emit(f hpack.HeaderField) {
	d.bytes += len(f.Name) + len(f.Value) + 32
	d.fields++
	switch {
	case d.err != nil:
	case d.bytes > d.limits.Bytes || d.fields > d.limits.Fields:
		d.err = ErrBlockTooLarge
	case !validName(f.Name):
		d.err = StreamError{Code: ProtocolError, Why: "a header name that is none"}
	case f.Name[0] != ':' && !handler.ValidFieldValue(f.Value): // of pseudo fields each has a table of its own
		d.err = StreamError{Code: ProtocolError, Why: "a header value that is none"}
	default:
		d.err = d.each(f.Name, f.Value)
	}
}

// validName reports whether a name is a token in lower case, or that of a pseudo field.
func validName(name string) bool {
	if len(name) > 1 && name[0] == ':' {
		name = name[1:]
	}
	for i := range len(name) {
		c := name[i]
		if c >= 'a' && c <= 'z' || c == '-' {
			continue
		}
		if c >= 'A' && c <= 'Z' || !handler.FieldName.Allows(c) {
			return false
		}
	}
	return name != ""
}

// Block puts a header block together from HEADERS and CONTINUATION frames.
type Block struct {
	limit  int // of its bytes, compressed
	kept   []byte
	frames int
	stream uint32
	end    bool
}

// mostFrames is of how many frames a block of limit bytes may be: there are peers that make short ones.
func mostFrames(limit int) int { return 16 + limit/512 }

// NewBlock takes blocks of up to limit bytes.
func NewBlock(limit int) *Block { return &Block{limit: limit} }

// Open is the stream whose block is not whole, or 0. Nothing but its CONTINUATION may come meanwhile.
func (b *Block) Open() uint32 { return b.stream }

// ErrBlockFlood is a header block that does not end (CVE-2023-45288).
var ErrBlockFlood = ConnError{EnhanceYourCalm, "the header block does not end"}

// Add takes a HEADERS or CONTINUATION frame. done is the whole block and end whether its stream ends with it, and is valid
// until the next frame is read.
func (b *Block) Add(f *Frame) (done []byte, end bool, err error) {
	p, err := b.fragment(f)
	if err != nil {
		return nil, false, err
	}
	if f.Type == Headers {
		b.end = f.Has(FlagEndStream)
		if f.Has(FlagEndHeaders) {
			return p, b.end, nil // nearly always: nothing is copied
		}
		b.stream, b.kept, b.frames = f.Stream, b.kept[:0], 0
	}
	b.frames++
	forever := len(p) == 0 && f.Type == Continuation && !f.Has(FlagEndHeaders) // empty ones could come so
	if forever || len(b.kept)+len(p) > b.limit || b.frames > mostFrames(b.limit) {
		return nil, false, ErrBlockFlood
	}
	b.kept = append(b.kept, p...)
	if !f.Has(FlagEndHeaders) {
		return nil, false, nil
	}
	done = b.kept
	b.stream, b.kept = 0, nil
	return done, b.end, nil
}

func (b *Block) fragment(f *Frame) ([]byte, error) {
	if f.Type == Continuation {
		return f.Payload, nil
	}
	p, err := f.Unpad()
	if err != nil || !f.Has(FlagPriority) {
		return p, err
	}
	if len(p) < 5 {
		return nil, ConnError{FrameSizeError, "no room for the priority that is announced"}
	}
	if Uint31(p) == f.Stream {
		return nil, ConnError{ProtocolError, "a stream that depends on itself"}
	}
	return p[5:], nil
}
