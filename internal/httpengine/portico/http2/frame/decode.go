package frame

import (
	"golang.org/x/net/http2/hpack"

	"portico.dev/internal/httpengine/httpmsg"
)

// BlockLimits are the limits of a header block.
type BlockLimits struct {
	// MaxBytes limits the size of the fields, counted as in RFC 9113, section 6.5.2: 32 additional bytes for each.
	MaxBytes int
	// MaxFields limits the number of fields.
	MaxFields int
}

// Decoder decodes header blocks (RFC 7541). A block beyond its limits is decoded to its end, because the dynamic table must
// be updated, unless it is so large that the connection should end. A single string may be as long as the block, which
// BlockAssembler limits.
//
// Between two blocks it only retains the table: 4 KiB of strings, counted as in RFC 7541, section 4.1, and 32 bytes for
// each entry.
type Decoder struct {
	limits BlockLimits
	grow   func() bool
	emit   func(name, value string) error
	table  dynamicTable
	// checksTable is set when an invalid field was added to the table. Until then, indexed fields need not be checked
	// again.
	checksTable bool

	bytes, fields int
	err           error
}

// NewDecoder returns a Decoder for blocks within limits.
func NewDecoder(l BlockLimits) *Decoder {
	return &Decoder{limits: l, table: dynamicTable{limit: maxTableSize}}
}

// GrowWith makes Decode call grow for a block beyond its limits. grow raises them with SetLimits, or returns false.
func (d *Decoder) GrowWith(grow func() bool) { d.grow = grow }

// SetLimits replaces the limits.
func (d *Decoder) SetLimits(l BlockLimits) { d.limits = l }

// exceedsLimits reports whether the current block is beyond its limits, and they cannot be raised.
func (d *Decoder) exceedsLimits() bool {
	for d.bytes > d.limits.MaxBytes || d.fields > d.limits.MaxFields {
		if d.grow == nil || !d.grow() {
			return true
		}
	}
	return false
}

// ErrBlockTooLarge is the error for a header block beyond its limits. It ends the stream, not the connection.
var ErrBlockTooLarge = StreamError{Code: EnhanceYourCalm, Reason: "the header block is larger than allowed"}

// ErrBlockBomb is the error for a header block that is many times too large. It is not decoded to its end, so the
// connection ends.
var ErrBlockBomb = ConnError{EnhanceYourCalm, "the header block is many times larger than allowed"}

// bombFactor is the multiple of MaxBytes that a block may have. One byte can refer to a field of 4 KiB.
const bombFactor = 4

func decodeError(why string) error { return ConnError{CompressionError, why} }

// Decode calls each for the fields of a complete block. It returns a ConnError if the block cannot be decoded or is an
// ErrBlockBomb. Otherwise it returns ErrBlockTooLarge, the first error of each, or a StreamError for an invalid field.
func (d *Decoder) Decode(block []byte, each func(name, value string) error) error {
	d.emit, d.bytes, d.fields, d.err = each, 0, 0, nil
	err := d.decode(block)
	d.emit = nil
	if err != nil {
		return err
	}
	return d.err
}

func (d *Decoder) decode(p []byte) error {
	for begun := false; len(p) > 0; {
		first := p[0]
		var f headerField
		var wrong, err error
		switch {
		case first >= 0x80: // an indexed field
			var i uint64
			if i, p, err = readInteger(p, 7); err == nil {
				f, err = d.table.indexed(i)
			}
			if d.checksTable && err == nil {
				wrong = checkField(f)
			}
		case first >= 0x40: // a literal that is added to the table
			if f, p, err = d.literal(p, 6); err == nil {
				wrong = checkField(f)
				d.checksTable = d.checksTable || wrong != nil
				d.table.add(f)
			}
		case first >= 0x20:
			if p, err = d.resize(p, begun); err != nil {
				return err
			}
			continue
		default: // a literal that is not added
			if f, p, err = d.literal(p, 4); err == nil {
				wrong = checkField(f)
			}
		}
		if err != nil {
			return err
		}
		begun = true
		d.field(f.name, f.value, wrong)
		if d.bytes > bombFactor*d.limits.MaxBytes { // bytes includes 32 for each field
			return ErrBlockBomb
		}
	}
	return nil
}

// resize applies a change of the table's size (RFC 7541, section 6.3), which must precede all fields (section 4.2). For an
// empty table it is accepted anywhere, as by golang.org/x/net/http2, because it has no effect.
func (d *Decoder) resize(p []byte, begun bool) ([]byte, error) {
	size, rest, err := readInteger(p, 5)
	switch {
	case err != nil:
		return nil, err
	case begun && d.table.count > 0:
		return nil, decodeError("a change of the table's size after a field")
	case size > maxTableSize:
		return nil, decodeError("a table larger than allowed")
	}
	d.table.limit = uint32(size)
	d.table.evict(d.table.limit)
	return rest, nil
}

func (d *Decoder) literal(p []byte, bits uint) (f headerField, rest []byte, err error) {
	i, p, err := readInteger(p, bits)
	if err != nil {
		return f, nil, err
	}
	if i == 0 {
		if f.name, p, err = readString(p, true); err != nil {
			return f, nil, err
		}
	} else {
		known, err := d.table.indexed(i)
		if err != nil {
			return f, nil, err
		}
		f.name = known.name
	}
	f.value, p, err = readString(p, false)
	return f, p, err
}

// field is called for each field. wrong is the result of checkField.
func (d *Decoder) field(name, value string, wrong error) {
	d.bytes += len(name) + len(value) + 32
	d.fields++
	switch {
	case d.err != nil:
	case (d.bytes > d.limits.MaxBytes || d.fields > d.limits.MaxFields) && d.exceedsLimits():
		d.err = ErrBlockTooLarge
	case wrong != nil:
		d.err = wrong
	default:
		d.err = d.emit(name, value)
	}
}

// checkField returns a StreamError for an invalid field.
func checkField(f headerField) error {
	switch {
	case !validName(f.name):
		return StreamError{Code: ProtocolError, Reason: "a header name that is none"}
	case f.name[0] != ':' && !httpmsg.ValidFieldValue(f.value): // each pseudo-header field has separate rules
		return StreamError{Code: ProtocolError, Reason: "a header value that is none"}
	}
	return nil
}

// validName reports whether a name is a token in lower case, or the name of a pseudo-header field.
func validName(name string) bool {
	if len(name) > 1 && name[0] == ':' {
		name = name[1:]
	}
	for i := range len(name) {
		c := name[i]
		if c >= 'a' && c <= 'z' || c == '-' {
			continue
		}
		if c >= 'A' && c <= 'Z' || !httpmsg.FieldName.Allows(c) {
			return false
		}
	}
	return name != ""
}

// BlockAssembler joins HEADERS and CONTINUATION frames to a header block.
type BlockAssembler struct {
	limit  int // in bytes, compressed
	grow   func() bool
	buf    []byte
	frames int
	stream uint32
	end    bool
}

// maxBlockFrames returns the maximum number of frames of a block of limit bytes. Some peers send short ones.
func maxBlockFrames(limit int) int { return 16 + limit/512 }

// NewBlockAssembler returns a BlockAssembler for blocks of up to limit bytes.
func NewBlockAssembler(limit int) *BlockAssembler { return &BlockAssembler{limit: limit} }

// GrowWith makes Add call grow for a block beyond the limit. grow raises it with SetLimit, or returns false.
func (b *BlockAssembler) GrowWith(grow func() bool) { b.grow = grow }

// SetLimit replaces the limit.
func (b *BlockAssembler) SetLimit(limit int) { b.limit = limit }

// hasRoom reports whether n bytes may be added, raising the limit if that is possible.
func (b *BlockAssembler) hasRoom(n int) bool {
	for len(b.buf)+n > b.limit {
		if b.grow == nil || !b.grow() {
			return false
		}
	}
	return true
}

// CompressedLimit returns the limit for a compressed block with fields of up to the given number of bytes. It is twice that
// number, so that a block that is slightly too large ends its stream and not the connection.
func CompressedLimit(fields int) int { return 2 * fields }

// OpenStream returns the stream of the incomplete block, or 0. Only its CONTINUATION may follow.
func (b *BlockAssembler) OpenStream() uint32 { return b.stream }

// ErrBlockFlood is the error for a header block without an end (CVE-2023-45288).
var ErrBlockFlood = ConnError{EnhanceYourCalm, "the header block does not end"}

// Add adds a HEADERS or CONTINUATION frame. done is the complete block, or nil, and valid until the next frame is read. end
// is set if the stream ends with it.
func (b *BlockAssembler) Add(f *Frame) (done []byte, end bool, err error) {
	p, err := b.fragment(f)
	if err != nil {
		return nil, false, err
	}
	if f.Type == Headers {
		b.end = f.Has(FlagEndStream)
		if f.Has(FlagEndHeaders) {
			return p, b.end, nil // nearly always the case: no copy is needed
		}
		b.stream, b.buf, b.frames = f.Stream, b.buf[:0], 0
	}
	b.frames++
	forever := len(p) == 0 && f.Type == Continuation && !f.Has(FlagEndHeaders) // without END_HEADERS: a flood of empty frames
	if forever || !b.hasRoom(len(p)) || b.frames > maxBlockFrames(b.limit) {
		return nil, false, ErrBlockFlood
	}
	b.buf = append(b.buf, p...)
	if !f.Has(FlagEndHeaders) {
		return nil, false, nil
	}
	done = b.buf
	b.stream, b.buf = 0, nil
	return done, b.end, nil
}

func (b *BlockAssembler) fragment(f *Frame) ([]byte, error) {
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

// dynamicTable is the dynamic table of a Decoder (RFC 7541, section 2.3.2). It is never searched, so it has no maps.
type dynamicTable struct {
	ring   []headerField // grows with the number of entries
	newest uint32        // entries are numbered; entry n is ring[n%len(ring)]
	count  uint32
	size   uint32 // of the entries, as in RFC 7541, section 4.1
	limit  uint32
}

// indexed returns the field at an index. The indices of the static table begin at 1.
func (t *dynamicTable) indexed(i uint64) (headerField, error) {
	switch {
	case i == 0:
		return headerField{}, decodeError("index 0")
	case i <= uint64(len(staticFields)):
		f := &staticFields[i-1]
		return headerField{f[0], f[1]}, nil
	case i-uint64(len(staticFields)) > uint64(t.count):
		return headerField{}, decodeError("an index beyond the table")
	}
	return t.ring[(t.newest-uint32(i-uint64(len(staticFields)))+1)%uint32(len(t.ring))], nil
}

// add adds an entry. An entry that is larger than the table empties it (RFC 7541, section 4.4).
func (t *dynamicTable) add(f headerField) {
	size := f.size()
	if size > t.limit {
		t.evict(0)
		return
	}
	t.evict(t.limit - size)
	if t.count == uint32(len(t.ring)) {
		t.grow()
	}
	t.newest++
	t.ring[t.newest%uint32(len(t.ring))] = f
	t.count++
	t.size += size
}

// grow doubles the ring. Its length is a power of two, so that entry numbers may overflow.
func (t *dynamicTable) grow() {
	old := t.ring
	t.ring = make([]headerField, max(initialRing, 2*len(old)))
	for i := range t.count {
		n := t.newest - i
		t.ring[n%uint32(len(t.ring))] = old[n%uint32(len(old))]
	}
}

// evict removes entries until the table is no larger than size.
func (t *dynamicTable) evict(size uint32) {
	for t.size > size {
		oldest := &t.ring[(t.newest-t.count+1)%uint32(len(t.ring))]
		t.size -= oldest.size()
		*oldest = headerField{}
		t.count--
	}
}

var errTruncated = decodeError("the header block is cut short")

// readInteger reads an integer with a prefix of the given number of bits (RFC 7541, section 5.1).
func readInteger(p []byte, bits uint) (n uint64, rest []byte, err error) {
	if len(p) == 0 {
		return 0, nil, errTruncated
	}
	most := uint64(1)<<bits - 1
	if n = uint64(p[0]) & most; n < most {
		return n, p[1:], nil
	}
	for i, shift := 1, 0; i < len(p); i, shift = i+1, shift+7 {
		n += uint64(p[i]&0x7f) << shift
		if p[i] < 0x80 {
			return n, p[i+1:], nil
		}
		if shift >= 56 {
			return 0, nil, decodeError("an integer without end")
		}
	}
	return 0, nil, errTruncated
}

// readString reads a string (RFC 7541, section 5.2). For common names it does not allocate.
func readString(p []byte, name bool) (s string, rest []byte, err error) {
	if len(p) == 0 {
		return "", nil, errTruncated
	}
	packed := p[0] >= 0x80
	n, p, err := readInteger(p, 7)
	if err != nil {
		return "", nil, err
	}
	if n > uint64(len(p)) {
		return "", nil, errTruncated
	}
	text := p[:n]
	if packed {
		if s, err = hpack.HuffmanDecodeToString(text); err != nil {
			return "", nil, decodeError(err.Error())
		}
		return s, p[n:], nil
	}
	if name {
		if known, ok := knownNames[string(text)]; ok {
			return known, p[n:], nil
		}
	}
	return string(text), p[n:], nil
}
